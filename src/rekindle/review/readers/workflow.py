"""Workflows of GitHub: jobs with their variables, each step read in the shell it runs in."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import product
from math import prod
from typing import NamedTuple

import msgspec

from rekindle.core.regex import re2
from rekindle.review.document import LANGUAGES, Dialect
from rekindle.review.readers.conditions import LONGEST, holds
from rekindle.review.readers.recorder import Recorder
from rekindle.review.readers.script import read_script
from rekindle.review.readers.yaml_nodes import Node, YamlReader, composed
from rekindle.review.trace import GIVEN, Image, Scope, Trace

_MOST_ROWS = 400
Row = dict[str, tuple[str, int]]
"""What the names of a matrix are in one run, each with its line."""
_EXPRESSION = re2.compile(r"\$\{\{\s*(.+?)\s*\}\}")
_KEPT = re2.compile(r"(\w+)=([^\"'>]*)[\"']?\s*(?:>>|\|\s*(?:Out-File|Add-Content|tee)).*GITHUB_ENV")


def read_github(trace: Trace, text: str) -> None:
    root = composed(trace, text)
    if root is not None:
        _WorkflowReader(trace, text).github(root)


class _Job(NamedTuple):
    """What holds for every step of a job, unless the step says otherwise. `row`: one run of its matrix."""

    scope: Scope
    row: Row
    system: str | None = None
    shell: str | None = None
    folder: str | None = None


class _WorkflowReader(YamlReader):
    def github(self, root: Node) -> None:
        top = self.mapping(root)
        self.variables(top.get("env"), self.trace.scopes[0])
        shell = self.text(self.path(top.get("defaults"), "run", "shell"))
        for name, job in self.mapping(top.get("jobs")).items():
            self._job(name, job, shell)
        steps = self.path(top.get("runs"), "steps")
        if steps is not None:
            self._steps(steps, _Job(self.trace.open(self.trace.scopes[0], "action"), {}, shell=shell))

    def _job(self, name: str, node: Node, shell: str | None) -> None:
        """Each row of the matrix is a world of its own; rows that differ in nothing that the job uses are one."""
        job = self.mapping(node)
        matrix = self.path(job.get("strategy"), "matrix")
        for out in self.sequence(self.mapping(matrix).get("exclude")):
            self.trace.excluded.update(range(out.start_mark.line + 1, out.end_mark.line + 1 + (out.flow_style or 0)))
        used = {each for key, part in job.items() if key not in ("strategy", "name") for each in self._names(part)}
        worlds: dict[tuple[tuple[str, str], ...], Row] = {}
        for row in self._rows(matrix):
            worlds.setdefault(tuple((key, row[key][0]) for key in sorted(used & {*row})), row)
        for row in worlds.values():
            self._run_of(job, self.trace.open(self.trace.scopes[0], f"job {name} row"), row, shell)

    def _names(self, node: Node) -> list[str]:
        text = "\n".join(self.lines[node.start_mark.line : node.end_mark.line + 1])
        return re.findall(r"\bmatrix\.([\w-]+)", text)

    def _run_of(self, job: dict[str, Node], scope: Scope, row: Row, shell: str | None) -> None:
        runs_on = self.filled(self.text(job.get("runs-on")) or " ".join(self.listed(job.get("runs-on"))), row)[0]
        system = "windows" if "windows" in runs_on.lower() else "linux" if "ubuntu" in runs_on.lower() else None
        if "${{" in runs_on:
            system = None
        self.variables(job.get("env"), scope, row)
        container = job.get("container")
        image = self.text(container) or self.text(self.path(container, "image"))
        if image and container is not None:
            name, known = self.filled(image, row)
            self.trace.stands_on(name, container.start_mark.line + 1, scope, known)
            system = system or "linux"
        elif job.get("runs-on") is not None:
            line = job["runs-on"].start_mark.line + 1
            self.trace.runners.append(
                Image(name=runs_on, line=line, order=self.trace.tick(), scope=scope.number, known=system is not None)
            )
        shell = self.text(self.path(job.get("defaults"), "run", "shell")) or shell
        folder = self.text(self.path(job.get("defaults"), "run", "working-directory"))
        if job.get("steps") is not None:
            self._steps(job["steps"], _Job(scope, row, system, shell, folder))

    def _steps(self, node: Node, job: _Job) -> None:
        for item in self.sequence(node):
            if self.trace.full:
                return
            step = self.mapping(item)
            runs = self._holds(self.text(step.get("if")) or "always()", job) if "if" in step else True
            if runs is False:
                continue
            if "uses" in step:
                self._uses(step, job)
            if "run" not in step:
                continue
            inner = self.trace.open(job.scope, "step")
            self.variables(step.get("env"), inner, job.row)
            chosen = job._replace(
                folder=self.text(step.get("working-directory")) or job.folder,
                shell=self.text(step.get("shell")) or job.shell,
            )
            self._run(step["run"], inner, chosen, conditional=runs is None)

    def _holds(self, text: str, job: _Job) -> bool | None:
        """Whether a condition holds in this run of the matrix; None: it asks for something else."""
        if len(text) > LONGEST:
            return None
        known = {"runner.os": job.system} if job.system else {}
        known |= {f"matrix.{name}": value for name, (value, _) in job.row.items()}
        plain = re.sub(r"\$\{\{|\}\}", "", text)
        filled = re.sub(r"[A-Za-z]\w*\.[\w.-]+(?!')", lambda name: f"'{known.get(name[0]) or '$'}'", plain)
        return holds(re.sub(r"'\$'", "$", filled).lower(), lambda _: None)

    def _uses(self, step: dict[str, Node], job: _Job) -> None:
        given = {}
        for key, value in self.mapping(step.get("with")).items():
            self._as_number(key, value)
            text, line = self.text(value) or "", value.start_mark.line + 1
            name = re.fullmatch(r"\$\{\{\s*matrix\.([\w-]+)\s*\}\}", text)
            given[key] = job.row[name[1]] if name and name[1] in job.row else (self.filled(text, job.row)[0], line)
        action = (self.text(step["uses"]) or "").partition("@")[0].lower()
        line = step["uses"].start_mark.line + 1
        self.trace.uses(action, line, job.scope, given=given, system=job.system)
        if action.startswith("docker://"):
            self.trace.stands_on(action.removeprefix("docker://"), line, self.trace.open(job.scope, "step"), True)

    def _run(self, node: Node, inner: Scope, job: _Job, *, conditional: bool) -> None:
        shell, system = job.shell, job.system
        text, first = self.script(node)
        filled = _EXPRESSION.sub(lambda match: self._expression(match, job.row), text)
        said = (shell or "").split()
        name = said[0].lower() if said else "pwsh" if system == "windows" else "bash"
        dialect = LANGUAGES.get(name, Dialect.SHELL)
        if name in ("python", "node", "perl"):
            return
        recorder = Recorder(self.trace, dialect, inner, system=system)
        recorder.directory = self.filled(job.folder, job.row)[0] if job.folder else None
        recorder.conditional = int(conditional)
        if dialect is Dialect.SHELL:
            recorder.stops = "{0}" not in (shell or "") or " -e" in (shell or "")
            recorder.pipefail = name == "bash" and shell is not None and ("{0}" not in shell or "pipefail" in shell)
        items, before = self.trace.invocations, len(self.trace.invocations)
        read_script(recorder, filled, first)
        read = {item.line: item.conditional for item in items[before:]}
        if dialect is not Dialect.SHELL and items and items[-1].scope == inner.number:
            # pwsh and cmd steps end with the exit code of their last command.
            items[-1] = msgspec.structs.replace(items[-1], checked=True)
        self._kept(filled, first, job.scope, recorder, read)

    def _kept(self, text: str, first: int, job: Scope, recorder: Recorder, read: dict[int, bool]) -> None:
        """`echo X=1 >> $GITHUB_ENV` holds for the steps below; `read` are the lines that run, and which of them may."""
        for row, line in enumerate(text.split("\n")):
            match = _KEPT.search(line)
            if match and (first + row in read or recorder.dialect is not Dialect.SHELL):
                outer = Recorder(self.trace, recorder.dialect, job)
                outer.conditional = int(read.get(first + row, False))
                value = match[2].strip()
                outer.set(match[1], value, first + row, known="$" not in value and "%" not in value, text=line.strip())

    def variables(self, node: Node | None, scope: Scope, row: Row | None = None) -> None:
        recorder = Recorder(self.trace, scope=scope)
        for key, value in self.mapping(node).items():
            plain = self.text(value)
            if plain is None:
                continue
            self._as_number(key, value)
            text, known = self.filled(plain, row or {})
            recorder.set(key, text, value.start_mark.line + 1, known=known, raw=plain, text=f"{key}: {plain}")

    def _rows(self, node: Node | None) -> list[Row]:
        """The runs that a matrix stands for: each value with each, without those taken out, and what is put in."""
        top = self.mapping(node)
        given, out = (list(map(self._row, self.sequence(top.get(key)))) for key in ("include", "exclude"))
        axes = {
            key: [(item.value, item.start_mark.line + 1) for item in self.sequence(value) if _is_plain(item)]
            for key, value in top.items()
            if key not in ("include", "exclude")
        }
        for key, value in top.items():
            for item in self.sequence(value):
                self._as_number(key, item)
        axes = {key: values for key, values in axes.items() if values}
        if prod(len(values) for values in axes.values()) > _MOST_ROWS:
            self.trace.unread(node.start_mark.line + 1 if node else 1, "", "a matrix of too many rows")
            return []
        rows = [dict(zip(axes, each, strict=True)) for each in product(*axes.values())] if axes else []
        rows = [row for row in rows if not any(_within(each, row, each) for each in out)]
        for more in given:
            fitting = [row for row in rows if _within(more, row, axes)] if axes else []
            for row in fitting:
                row.update(more)
            rows += [] if fitting else [more]
        return rows or [{}]

    def _row(self, node: Node) -> Row:
        for key, value in self.mapping(node).items():
            self._as_number(key, value)
        rows = self.mapping(node).items()
        return {key: (each.value, each.start_mark.line + 1) for key, each in rows if _is_plain(each)}

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

    def filled(self, text: str, row: Row) -> tuple[str, bool]:
        text = _EXPRESSION.sub(lambda match: self._expression(match, row, keep=True), text)
        return text, "${{" not in text

    def _expression(self, match: re.Match[str], row: Row, *, keep: bool = False) -> str:
        name = re.fullmatch(r"matrix\.([\w-]+)", match[1])
        if name and name[1] in row:
            return row[name[1]][0]
        known = re.fullmatch(r"env\.(\w+)", match[1])
        if known:
            found = self.trace.scopes[0].get(known[1], self.trace.order)
            if found is not None and found.known:
                return found.text
        # Inside a script the braces would be read as code of the shell; a word of the same width stands for them.
        return match[0] if keep else GIVEN + re.sub(r"\W+", "_", match[1]) + "__"


def _is_plain(node: Node) -> bool:
    return node.id == "scalar" and "${{" not in node.value


def _within(some: Row, row: Row, names: Iterable[str]) -> bool:
    """What `some` says of these names, the row says too."""
    return all(row.get(key, ("",))[0] == some[key][0] for key in names if key in some)
