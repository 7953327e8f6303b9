"""Makefiles: variables, and each recipe read as a shell script."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rekindle.review.readers.recorder import Recorder
from rekindle.review.readers.script import read_script
from rekindle.review.trace import LONGEST_VALUE, Trace

_SET = re.compile(r"(?:(?:export|override|private)\s+)*([A-Za-z_][\w.-]*)\s*(\?|:{1,3}|\+|!)?=\s*(.*)", re.DOTALL)
_RULE = re.compile(r"([^\s:=#][^:=#]*)::?(?![:=])([^=;#]*)(?:$|;(.*)|#)", re.DOTALL)
_FOR_ONE = re.compile(r"([^\s:=#][^:=#]*):(?![:=])\s*")
_FREE = re.compile(r"(?<!\$)\$(?:\(([\w.-]+)\)|\{([\w.-]+)\}|([A-Za-z@<^*]))")
_DEFINE = re.compile(r"(?:override\s+)?define\s+([\w.-]+)")
_CONDITION = re.compile(r"(?:ifn?eq|ifn?def|else|endif|endef|-?include|sinclude|vpath|unexport)\b")
_EQUAL = re.compile(r"ifn?eq\s+(?:\(([^,]*),([^,]*)\)|[\"']([^\"']*)[\"']\s+[\"']([^\"']*)[\"'])\Z")
_LONGEST, _ROUNDS = 1 << 17, 8


def read_makefile(trace: Trace, text: str) -> None:
    """Make joins lines at a backslash, reads all of its variables, and then hands every recipe to the shell."""
    reader, inside = _MakeReader(trace), False
    name, body = "", list[str]()
    for row, rows in _logical(text.split("\n")):
        line = " ".join(each.removesuffix("\\").strip() for each in rows)
        if name:
            if line != "endef":
                body.append(line.lstrip("@"))
                continue
            reader.values[name], name = " ; ".join(body), ""
        elif named := _DEFINE.match(line):
            name, body = named[1], []
        elif rows[0].startswith("\t") and False not in reader.open and (inside or not _SET.match(line)):
            reader.recipe(row, rows)
        elif _CONDITION.match(line):
            reader.condition(line)
        elif False in reader.open:
            continue  # a branch that is not taken
        elif line and not line.startswith("#"):
            inside = not reader.sets(line, row, reader.values) and not line.startswith("export ")
            if inside:
                reader.rule(line, row)
            elif line.startswith("export "):
                reader.exported(line.split()[1:], row)
    # What `eval` puts into a variable is not known.
    for name in sorted(reader.unknown.union(re.findall(r"\$[({]eval\s+([\w.-]+)", text))):
        reader.unknown.add(name)
        reader.shared.set(name, f"${{{name}}}", 1, known=False)
    reader.run(one_shell=bool(re.search(r"(?m)^\.ONESHELL", text)))


def _logical(rows: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Each line with those that it goes on in, and the row of its first."""
    first = 0
    for row, line in enumerate(rows):
        if not line.endswith("\\") or row == len(rows) - 1:
            yield first, rows[first : row + 1]
            first = row + 1


class _MakeReader:
    """`recipes`: the rows of each, what its rule names, and the variables that are for this target only."""

    def __init__(self, trace: Trace) -> None:
        self.shared = Recorder(trace)
        self.values: dict[str, str] = {}
        self.unknown: set[str] = set()
        self.open: list[bool | None] = []  # whether the branches hold that this line stands in
        self.taken: list[bool | None] = []  # whether one of the branches so far was
        self.own: dict[str, dict[str, str]] = {}
        self.recipes: list[tuple[dict[int, str], dict[str, str], str]] = [({}, {}, "")]

    def condition(self, line: str) -> None:
        """`ifeq (a,b)`, `else`, `endif`: which branch the lines behind it stand in."""
        otherwise = line.startswith("else")
        if line.startswith("endif") or (otherwise and not self.open):
            del self.open[-1:], self.taken[-1:]
            return
        if not (otherwise or line.startswith("if")):
            return
        before = self.taken.pop() if otherwise else False
        self.open = self.open[:-1] if otherwise else self.open
        answer = self._holds(line.removeprefix("else").strip()) if "if" in line else True
        self.open.append(False if before else None if before is None and answer else answer)
        self.taken.append(before or (None if before is None else answer))

    def _holds(self, line: str) -> bool | None:
        found = _EQUAL.match(line)
        if found is None:
            return None
        sides = [_filled(each, self.values).strip() for each in found.groups() if each is not None]
        asked = self.shared.trace.offered | {name.upper() for name in self.unknown}
        if "$" in "".join(sides) or not asked.isdisjoint(re.findall(r"\w+", line.upper())):
            return None
        return (sides[0] == sides[1]) is line.startswith("ifeq")

    def sets(self, line: str, row: int, values: dict[str, str]) -> bool:
        found = _SET.match(line)
        if found is None:
            return False
        name, how, value = found[1], found[2] or "", found[3].partition(" #")[0].strip()
        if None in self.open and name in values and how in ("", ":", "::") and values[name] != value:
            self.unknown.add(name)  # which of the branches holds is not known
        if how == "?":
            self.shared.trace.offered.add(name.upper())
        if how != "?" or name not in values:
            value = _filled(value, self.values | values) if ":" in how and "$" in value else value
            before = values.get(name, self.values.get(name, "")) if how == "+" else ""
            values[name] = f"{before} {value}".strip()
        whole = _filled(values[name], self.values | values) if "$" in values[name] else values[name]
        kind = "environment" if line.startswith("export") else "shell"
        known = "$" not in whole and how != "!" and name not in self.unknown
        self.shared.set(name, whole, row + 1, how=kind, known=known)
        if how == "!" or len(whole) > LONGEST_VALUE:
            self.unknown.add(name)
            values[name] = ""
        return True

    def exported(self, names: list[str], row: int) -> None:
        for name in names:
            if name in self.values:
                self.shared.set(name, _filled(self.values[name], self.values), row + 1)

    def rule(self, line: str, row: int) -> None:
        one = _FOR_ONE.match(line)
        if one and _SET.match(line, one.end()):
            self.sets(line[one.end() :], row, self.own.setdefault(one[1].strip(), {}))
            return
        found = _RULE.match(line)
        target = found[1].strip() if found else ""
        inputs = _filled(found[2], self.values).split() if found else []
        automatic = {"@": target.partition(" ")[0], "<": inputs[0] if inputs else "", "^": " ".join(inputs)}
        automatic = {name: re.sub(r"[^\w./ -]", "_", value) for name, value in automatic.items()}
        self.recipes.append(({}, automatic if found else {}, target))
        if found and found[3]:
            self.recipe(row, [f"\t{found[3]}"])

    def recipe(self, row: int, rows: list[str]) -> None:
        # `@`, `-` and `+` belong to make where a command begins; on a line that goes on they are the command's.
        first = re.sub(r"^\t([@+ -]*)", lambda match: " " * len(match[1]), rows[0])
        self.recipes[-1][0].update(enumerate([first, *(each.removeprefix("\t") for each in rows[1:])], start=row))

    def run(self, *, one_shell: bool) -> None:
        trace = self.shared.trace
        known = {name: value for name, value in self.values.items() if name not in self.unknown and "$(" not in value}
        for rows, automatic, target in self.recipes:
            own = known | self.own.get(target, {}) | automatic
            first = min(rows, default=0)
            whole = [rows.get(row, "") for row in range(first, max(rows, default=-1) + 1)]
            # Every line of a recipe has a shell of its own.
            for row, lines in [(0, whole)] if one_shell else _logical(whole):
                if trace.full or not any(lines):
                    continue
                recorder = Recorder(trace, scope=trace.open(trace.scopes[0], f"run {first + row + 1}"))
                recorder.stops = True
                text = _filled("\n".join(lines), own)
                read_script(recorder, text.replace("$$", "$") + "\n", first + row + 1)


def _filled(text: str, values: dict[str, str]) -> str:
    """Make's variables filled in; what it does not know stays, in the shell's own spelling."""

    def put(match: re.Match[str]) -> str:
        name = match[1] or match[2] or match[3]
        return values[name] if name in values else f"${{{name}}}" if name.isidentifier() else match[0]

    for _ in range(_ROUNDS):
        if len(text) + sum(len(put(match)) for match in _FREE.finditer(text)) > _LONGEST:
            return text
        before, text = text, _FREE.sub(put, text)
        if text == before:
            break
    return text
