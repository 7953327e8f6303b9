"""Commands inside of commands, and texts that a shell makes of other texts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from rekindle.review.trace import Word, program_of

_SHELLS = ("bash", "sh", "dash", "zsh", "su")
_HANDED = re.compile(r"-[a-z]*c\Z")
_ALONE = re.compile(r"-[itd]+|--(?:rm|privileged|init|tty|interactive|detach|[\w-]+=.*)")


def handed_on(words: list[Word]) -> Word | None:
    """The script inside a command: of `bash -c`, `sudo su - me -c` and `eval`."""
    if words[0].text == "eval" and len(words) == 2:
        return words[1]
    first = 1 if words[0].text == "sudo" else 0
    named = program_of(words[first].text) if first < len(words) else ""
    if named == "ssh" and " " in words[-1].text:
        return words[-1]
    if named == "sbatch":
        wrapped = [
            word for before, word in pairwise(words) if before.text == "--wrap" or word.text.startswith("--wrap=")
        ]
        return msgspec.structs.replace(wrapped[0], text=wrapped[0].text.removeprefix("--wrap=")) if wrapped else None
    if first >= len(words) or program_of(words[first].text) not in _SHELLS:
        return None
    options = [at for at in range(first + 1, len(words) - 1) if _HANDED.match(words[at].text)]
    return words[options[0] + 1] if options else None


def contained(words: list[Word]) -> int:
    """Where the command begins that `docker run` or `docker exec` starts inside; 0 where there is none."""
    texts = [word.text for word in words]
    at = 2 if texts[0] in ("docker", "podman") and texts[1:2] in (["run"], ["exec"]) else len(texts)
    while at < len(texts) and texts[at].startswith("-"):
        at += 1 if _ALONE.fullmatch(texts[at]) else 2
    return at + 1 if at + 1 < len(texts) else 0


def printed(words: Sequence[list[str]]) -> str | None:
    """What a pipeline prints that echoes one word and then only cuts it; None where that is not known."""
    text = words[0][1] if words and words[0][:1] == ["echo"] and len(words[0]) == 2 else "$"
    for part in words[1:]:
        said = " ".join(part)
        if gone := re.fullmatch(r"tr -d (\S)", said):
            text = text.replace(gone[1], "")
        elif fields := re.fullmatch(r"cut -d ?(\S) -f ?(\d)(?:[-,](\d))?", said):
            text = fields[1].join(text.split(fields[1])[int(fields[2]) - 1 : int(fields[3] or fields[2])])
        elif swapped := re.fullmatch(r"sed (?:-e )?s(.)\\?(.)\1(\w*)\1(g?)", said):
            text = text.replace(swapped[2], swapped[3], -1 if swapped[4] else 1)
        else:
            return None
    return None if "$" in text else text


def trimmed(text: str, sign: str, pattern: str) -> str:
    expression = ".*".join(re.escape(part) for part in pattern.split("*"))
    if sign.startswith("#"):
        greedy = expression if sign == "##" else expression.replace(".*", ".*?")
        return re.sub(rf"\A(?:{greedy})", "", text, count=1)
    for start in range(len(text)) if sign == "%%" else range(len(text) - 1, -1, -1):
        if re.fullmatch(expression, text[start:]):
            return text[:start]
    return text
