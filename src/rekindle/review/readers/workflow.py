"""Workflows of GitHub: jobs with their variables, each step read in the shell it runs in."""

from __future__ import annotations

import re
from itertools import product
from math import prod
from typing import NamedTuple

import msgspec

from rekindle.core.regex import re2
from rekindle.review.document import LANGUAGES, Dialect
from rekindle.review.readers.recorder import Recorder
from rekindle.review.readers.script import read_script
from rekindle.review.readers.yaml_nodes import Node, YamlReader, composed
from rekindle.review.trace import Scope, Trace

_MOST_ROWS, _MOST_WAYS = 400, 12
_EXPRESSION = re2.compile(r"\$\{\{\s*(.+?)\s*\}\}")
_KEPT = re2.compile(r"(\w+)=([^\"'>]*)[\"']?\s*(?:>>|\|\s*(?:Out-File|Add-Content|tee)).*GITHUB_ENV")


def read_github(trace: Trace, text: str) -> None:
    root = composed(trace, text)
    if root is not None:
        _WorkflowReader(trace, text).github(root)


def _ways(rows: list[dict[str, str]], text: str) -> list[dict[str, str]]:
    """What the names of the matrix that a script uses are in turn."""
    names = set(re.findall(r"\$\{\{\s*matrix\.([\w-]+)\s*\}\}", text))
    ways = {tuple((name, row[name]) for name in sorted(names) if name in row) for row in rows} if names else set()
    return [dict(way) for way in sorted(ways)] if len(ways) <= _MOST_WAYS else []


class _Job(NamedTuple):
    """What holds for every step of a job, unless the step says otherwise.

    `choices`: what a name of the matrix is in turn, each value with its line.
    """

    scope: Scope
    matrix: dict[str, str]
    choices: dict[str, tuple[tuple[str, int], ...]]
    rows: list[dict[str, str]]
    system: str | None = None
    shell: str | None = None
    folder: str | None = None
    python: str = ""
    """The name that the matrix has for the Python."""


class _WorkflowReader(YamlReader):
    def github(self, root: Node) -> None:
        top = self.mapping(root)
        self.variables(top.get("env"), self.trace.scopes[0])
        shell = self.text(self.path(top.get("defaults"), "run", "shell"))
        for name, job in self.mapping(top.get("jobs")).items():
            self._job(name, job, shell)
        steps = self.path(top.get("runs"), "steps")
        if steps is not None:
            self._steps(steps, _Job(self.trace.open(self.trace.scopes[0], "action"), {}, {}, [], shell=shell))

    def _job(self, name: str, node: Node, shell: str | None) -> None:
        job = self.mapping(node)
        scope = self.trace.open(self.trace.scopes[0], f"job {name}")
        node = self.path(job.get("strategy"), "matrix")
        matrix, choices = self._matrix(node), self._choices(node)
        for out in self.sequence(self.mapping(node).get("exclude")):
            self.trace.excluded.update(range(out.start_mark.line + 1, out.end_mark.line + 1 + (out.flow_style or 0)))
        runs_on = self.filled(self.text(job.get("runs-on")) or " ".join(self.listed(job.get("runs-on"))), matrix)[0]
        system = "windows" if "windows" in runs_on.lower() else "linux" if "ubuntu" in runs_on.lower() else None
        if "${{" in runs_on:
            system = None
        self.variables(job.get("env"), scope, matrix)
        container = job.get("container")
        image = self.text(container) or self.text(self.path(container, "image"))
        if image and container is not None:
            name, known = self.filled(image, matrix)
            self.trace.stands_on(name, container.start_mark.line + 1, scope, known)
            system = system or "linux"
        shell = self.text(self.path(job.get("defaults"), "run", "shell")) or shell
        folder = self.text(self.path(job.get("defaults"), "run", "working-directory"))
        if job.get("steps") is not None:
            uses = [self.text(self.path(each, "with", "python-version")) or "" for each in self.sequence(job["steps"])]
            named = [found[1] for each in uses if (found := re.search(r"\bmatrix\.([\w-]+)", each))]
            made = _Job(scope, matrix, choices, self._rows(node), system, shell, folder, next(iter(named), ""))
            self._steps(job["steps"], made)

    def _steps(self, node: Node, job: _Job) -> None:
        for item in self.sequence(node):
            if self.trace.full:
                return
            step = self.mapping(item)
            if "uses" in step:
                self._uses(step, job)
            if "run" not in step:
                continue
            inner = self.trace.open(job.scope, "step")
            self.variables(step.get("env"), inner, job.matrix)
            chosen = job._replace(
                folder=self.text(step.get("working-directory")) or job.folder,
                shell=self.text(step.get("shell")) or job.shell,
            )
            text = self.text(step["run"]) or ""
            ways = _ways(job.rows, text) if re.search(r"torch|/whl/", text) else []
            for way in ways or [{}]:
                row = chosen._replace(matrix={**job.matrix, **way})
                if way and job.python:
                    self._meets(inner, [each for each in job.rows if way.items() <= each.items()], job)
                self._run(step["run"], inner, row, conditional="if" in step or len(ways) > 1)

    def _meets(self, scope: Scope, rows: list[dict[str, str]], job: _Job) -> None:
        """The Pythons that the matrix has for what follows."""
        lines, meets = dict(job.choices.get(job.python, ())), {row.get(job.python, "") for row in rows}
        given = tuple((text, line) for text, line in lines.items() if text in meets)
        self.trace.uses("setup-python", 0, scope, choices={"python-version": given})

    def _uses(self, step: dict[str, Node], job: _Job) -> None:
        values = self.mapping(step.get("with"))
        given = {
            key: (self.filled(self.text(value) or "", job.matrix)[0], value.start_mark.line + 1)
            for key, value in values.items()
        }
        choices: dict[str, tuple[tuple[str, int], ...]] = {}
        for key, value in values.items():
            self._as_number(key, value)
            name = re.fullmatch(r"\$\{\{\s*matrix\.([\w-]+)\s*\}\}", self.text(value) or "")
            if name and name[1] in job.choices:
                choices[key] = job.choices[name[1]]
        action = (self.text(step["uses"]) or "").partition("@")[0].lower()
        line = step["uses"].start_mark.line + 1
        self.trace.uses(action, line, job.scope, given=given, system=job.system, choices=choices)

    def _run(self, node: Node, inner: Scope, job: _Job, *, conditional: bool) -> None:
        shell, system = job.shell, job.system
        text, first = self.script(node)
        filled = _EXPRESSION.sub(lambda match: self._expression(match, job.matrix), text)
        name = (shell or "").split()[0].lower() if shell else "pwsh" if system == "windows" else "bash"
        dialect = LANGUAGES.get(name, Dialect.SHELL)
        if name in ("python", "node", "perl"):
            return
        recorder = Recorder(self.trace, dialect, inner, system=system)
        recorder.directory = self.filled(job.folder, job.matrix)[0] if job.folder else None
        recorder.conditional = int(conditional)
        if dialect is Dialect.SHELL:
            recorder.stops = "{0}" not in (shell or "") or " -e" in (shell or "")
            recorder.pipefail = name == "bash" and shell is not None and ("{0}" not in shell or "pipefail" in shell)
        read_script(recorder, filled, first)
        items = self.trace.invocations
        if dialect is not Dialect.SHELL and items and items[-1].scope == inner.number:
            # pwsh and cmd steps end with the exit code of their last command.
            items[-1] = msgspec.structs.replace(items[-1], checked=True)
        self._kept(filled, first, job.scope, recorder)

    def _kept(self, text: str, first: int, job: Scope, recorder: Recorder) -> None:
        """`echo X=1 >> $GITHUB_ENV` holds for the steps below."""
        for row, line in enumerate(text.split("\n")):
            if match := _KEPT.search(line):
                outer = Recorder(self.trace, recorder.dialect, job)
                value = match[2].strip()
                outer.set(match[1], value, first + row, known="$" not in value and "%" not in value, text=line.strip())

    def variables(self, node: Node | None, scope: Scope, matrix: dict[str, str] | None = None) -> None:
        recorder = Recorder(self.trace, scope=scope)
        for key, value in self.mapping(node).items():
            plain = self.text(value)
            if plain is None:
                continue
            self._as_number(key, value)
            text, known = self.filled(plain, matrix or {})
            recorder.set(key, text, value.start_mark.line + 1, known=known, raw=plain, text=f"{key}: {plain}")

    def _matrix(self, node: Node | None) -> dict[str, str]:
        """What has one value only; of several it is not known which one a run has."""
        found: dict[str, str] = {}
        for key, value in self.mapping(node).items():
            values = self.listed(value)
            if len(values) == 1 and key not in ("include", "exclude"):
                found[key] = values[0]
        return found

    def _choices(self, node: Node | None) -> dict[str, tuple[tuple[str, int], ...]]:
        """Each value that a name of the matrix has in turn; nothing where rows are taken out of it again."""
        top = self.mapping(node)
        rows = [*((key, value) for key, value in top.items() if key not in ("include", "exclude"))]
        rows += [pair for row in self.sequence(top.get("include")) for pair in self.mapping(row).items()]
        found: dict[str, list[tuple[str, int]]] = {}
        for key, value in rows:
            for item in self.sequence(value) if value.id == "sequence" else [value]:
                self._as_number(key, item)
                if item.id == "scalar":
                    found.setdefault(key, []).append((item.value, item.start_mark.line + 1))
        return {} if "exclude" in top else {key: tuple(values) for key, values in found.items()}

    def _rows(self, node: Node | None) -> list[dict[str, str]]:
        """The runs that a matrix stands for: its rows, or each value with each, without those that are taken out."""
        top = self.mapping(node)
        given, out = (
            [{key: self.text(value) or "" for key, value in self.mapping(row).items()} for row in self.sequence(each)]
            for each in (top.get("include"), top.get("exclude"))
        )
        names = {key: self.listed(value) for key, value in top.items() if key not in ("include", "exclude")}
        if (given and names) or ("exclude" in top and not out):
            return []
        whole = [] if prod(len(values) for values in names.values()) > _MOST_ROWS else product(*names.values())
        rows = given or [dict(zip(names, row, strict=True)) for row in whole]
        return [row for row in rows if not any(each.items() <= row.items() for each in out)]

    def _as_number(self, name: str, node: Node) -> None:
        """`3.10` without quotes is the number 3.1."""
        if node.id != "scalar" or node.style is not None or not re.fullmatch(r"\d+\.\d+0", node.value):
            return
        if not re.search(r"(?i)py|torch|cuda|ver", name):
            return
        line = node.start_mark.line
        row, at = self.lines[line], node.start_mark.column
        right = row[:at] + f'"{node.value}"' + row[at + len(node.value) :]
        read_as = node.value.rstrip("0")
        self.trace.slip("yaml-number", line + 1, right, name=name, value=node.value, read=read_as)

    def filled(self, text: str, matrix: dict[str, str]) -> tuple[str, bool]:
        text = _EXPRESSION.sub(lambda match: self._expression(match, matrix, keep=True), text)
        return text, "${{" not in text

    def _expression(self, match: re.Match[str], matrix: dict[str, str], *, keep: bool = False) -> str:
        name = re.fullmatch(r"matrix\.([\w-]+)", match[1])
        if name and name[1] in matrix:
            return matrix[name[1]]
        known = re.fullmatch(r"env\.(\w+)", match[1])
        if known:
            found = self.trace.scopes[0].get(known[1], self.trace.order)
            if found is not None and found.known:
                return found.text
        # Inside a script the braces would be read as code of the shell; a word of the same width stands for them.
        return match[0] if keep else "__" + re.sub(r"\W+", "_", match[1]) + "__"
