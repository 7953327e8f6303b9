"""Makefiles: variables, and each recipe read as a shell script."""

from __future__ import annotations

import re

from rekindle.review.readers.recorder import Recorder
from rekindle.review.readers.script import read_script
from rekindle.review.trace import Trace

_SET = re.compile(r"(?:export\s+|override\s+)?([A-Za-z_][\w.-]*)\s*(\?|:{1,3}|\+|!)?=\s*(.*)")
_RULE = re.compile(r"([^\s:=#][^:=#]*):(?![:=])([^=;#]*)(?:$|;|#)")
_FREE = re.compile(r"(?<!\$)\$(?:\(([\w.-]+)\)|\{([\w.-]+)\}|([A-Za-z@<^*]))")
_LONGEST = 1 << 20


def read_makefile(trace: Trace, text: str) -> None:
    """Make joins lines at a backslash, fills in its own variables, and hands every recipe to the shell."""
    rows = text.split("\n")
    values: dict[str, str] = {}
    automatic: dict[str, str] = {}
    recipe: list[str] = []
    first = 0
    shared = Recorder(trace)
    for row, line in enumerate([*rows, ""]):
        if line.startswith("\t") or (recipe and recipe[-1].endswith("\\")):
            first = first or row + 1
            recipe.append(line)
            continue
        if recipe and line.strip() and not line.startswith("#"):
            _recipe(trace, recipe, first, values | automatic)
            recipe, first = [], 0
        elif recipe:
            recipe.append("")
            continue
        rule = _RULE.match(line)
        if rule:
            inputs = _filled(rule[2], values).split()
            automatic = {"@": rule[1].split()[0], "<": inputs[0] if inputs else "", "^": " ".join(inputs)}
            automatic = {name: re.sub(r"[^\w./ -]", "_", value) for name, value in automatic.items()}
            continue
        found = _SET.match(line.strip())
        if found and not line.strip().startswith(("ifeq", "ifneq", "define")):
            value = _filled(found[3].partition(" #")[0].strip(), values)
            if found[2] != "?" or found[1] not in values:
                values[found[1]] = f"{values.get(found[1], '')} {value}".strip() if found[2] == "+" else value
            how = "environment" if line.strip().startswith("export") else "shell"
            shared.set(found[1], values[found[1]], row + 1, how=how, known="$" not in value)
        elif re.match(r"\s*export\s+\w", line):
            for name in line.split()[1:]:
                if name in values:
                    shared.set(name, values[name], row + 1)
    if recipe:
        _recipe(trace, recipe, first, values | automatic)


def _recipe(trace: Trace, rows: list[str], first: int, values: dict[str, str]) -> None:
    scope = trace.open(trace.scopes[0], f"run {first}")
    recorder = Recorder(trace, scope=scope)
    recorder.stops = True
    # `@`, `-` and `+` belong to make where a command begins; on a line that goes on they are the command's.
    goes_on = [False, *(row.endswith("\\") for row in rows)]
    body = [
        row.removeprefix("\t") if inside else re.sub(r"^\t([@+ -]*)", lambda match: " " * len(match[1]), row)
        for row, inside in zip(rows, goes_on, strict=False)
    ]
    text = _filled("\n".join(body), values).replace("$$", "$")
    read_script(recorder, text + "\n", first)


def _filled(text: str, values: dict[str, str]) -> str:
    """One round of make's variables; what it does not know stays, in the shell's own spelling."""

    def put(match: re.Match[str]) -> str:
        name = match[1] or match[2] or match[3]
        return values[name] if name in values else f"${{{name}}}" if name.isidentifier() else match[0]

    if len(text) + sum(len(put(match)) for match in _FREE.finditer(text)) > _LONGEST:
        return text
    return _FREE.sub(put, text)
