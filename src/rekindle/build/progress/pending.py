"""What Ninja has still to make, and what its lines say."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from rekindle.core import run
from rekindle.formats import ninja_log

STATUS = "[%f/%t] "
"""NINJA_STATUS as the lines are read here; a user's own would not be understood."""

_LINE = re.compile(r"^\[(?P<done>\d{1,7})/(?P<total>\d{1,7})\] (?P<text>.*)$")
_MAKES = re.compile(r"^(?:Building \S+ (?:dependency )?object|Linking .*?|Creating .*?|Archiving .*?) (?P<path>\S+)$")

_RENEWS = "Re-running CMake..."
_OUTPUT = re.compile(r" -o (\S+)|/Fo(\S+)")
_CUSTOM = re.compile(
    rb"^build ((?:[^\s:|$]|\$.)+)[^\n]*: CUSTOM_COMMAND\b[^\n]*\n(?:  (?!DESC)[^\n]*\n)*  DESC = ([^\n]+)$",
    re.MULTILINE,
)


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """`[331/1598] Building CXX object a.cpp.o`: an output, or what the command says of itself."""

    done: int
    total: int
    name: str


def read(line: str) -> Line | None:
    found = _LINE.match(line)
    if not found:
        return None
    makes = _MAKES.match(found["text"])
    return Line(done=int(found["done"]), total=int(found["total"]), name=makes["path"] if makes else found["text"])


def listed(ninja: str, build: Path, targets: Sequence[str], environ: Mapping[str, str]) -> tuple[str, ...]:
    """What Ninja would make now, in its order; nothing when it does not say.

    Only while no Ninja runs in this folder: even a dry run mends the logs that the other one is writing.
    """
    said = run.call(
        [ninja, "-C", str(build), "-n", *targets], env={**environ, "NINJA_STATUS": STATUS}, cwd=build, timeout=120
    )
    if not said.ok:
        return ()
    names = [found.name for line in said.out.splitlines() if (found := read(line))]
    if _RENEWS in names:
        # Ninja stops there: it cannot know what CMake will write. The rules of before are near enough.
        names += _commanded(ninja, build, targets, environ)
    return tuple(dict.fromkeys(names))


def _commanded(ninja: str, build: Path, targets: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """The outputs of all commands that lead to the targets, without those that Ninja's log has and the folder too."""
    said = run.call([ninja, "-C", str(build), "-t", "commands", *targets], env=environ, cwd=build, timeout=120)
    log = build / ".ninja_log"
    made = {step.output for step in ninja_log.read(log)} if log.is_file() else set()
    outputs = [found[1] or found[2] for line in said.out.splitlines() if (found := _OUTPUT.search(line))]
    return [name for name in outputs if not (name in made and (build / name).exists())]


def described(build: Path) -> dict[str, str]:
    """The first output of every command that names itself by a sentence, by that sentence.

    Ninja's lines say `Performing build step for 'nccl_external'`, its log says which file came of it.
    """
    try:
        # On Windows CMake ends its lines with CRLF.
        text = (build / "build.ninja").read_bytes().replace(b"\r\n", b"\n")
    except OSError:
        return {}
    names: dict[str, str] = {}
    for found in _CUSTOM.finditer(text):
        output = found[1].decode("utf-8", "replace").replace("$:", ":").replace("$ ", " ")
        names.setdefault(found[2].decode("utf-8", "replace"), output)
    return names
