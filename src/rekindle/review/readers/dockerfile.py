"""Dockerfiles: stages with their ENV and ARG, each RUN read as a shell script of its own."""

from __future__ import annotations

import io
import logging
import re
import shlex
from difflib import get_close_matches
from functools import lru_cache

import msgspec

from rekindle.core.regex import re2
from rekindle.review.document import Dialect
from rekindle.review.readers.recorder import Recorder
from rekindle.review.readers.script import read_script
from rekindle.review.trace import Copied, Scope, Trace

_HEREDOC = re.compile(r"<<-?\s*([\"']?)([A-Za-z_]\w*)\1")
_VARIABLE = re2.compile(r"\$\{(\w+)(?::-([^}]*))?[^}]*\}|\$(\w+)")
_PAIR = re.compile(r"(?<!\w)([A-Za-z_]\w*)=(\"(?:\\.|[^\"\\])*\"|'[^']*'|(?:\\.|[^\s\\])*)")


@lru_cache(maxsize=64)
def _near(name: str) -> list[str]:
    return get_close_matches(name, _INSTRUCTIONS, 1, 0.7)


def read_dockerfile(trace: Trace, text: str) -> None:
    from dockerfile_parse import DockerfileParser  # type: ignore[import-untyped]

    logging.getLogger("dockerfile_parse").setLevel(logging.ERROR)
    if re.search(r"(?im)^bootstrap[ \t]*:", text):
        text = _as_dockerfile(text)
    elif re.match(r"(?i)(?:#[ \t]*\w+[ \t]*=.*\n)*#[ \t]*escape[ \t]*=[ \t]*`", text):
        text = re.sub(r"(?m)`[ \t]*$", r"\\", text)  # lines go on at the sign that the first comment names
    between = r"(?m)(\\[ \t]*\n)((?:[ \t]*\n)+)(?=[ \t]*\S)"  # blank lines in between are left out
    text = re.sub(between, lambda rows: rows[1] + "\\\n" * rows[2].count("\n"), text)
    plain, bodies = _without_heredocs(text)
    parser = DockerfileParser(fileobj=io.BytesIO(plain.encode("utf-8")))
    reader = _DockerReader(trace, text, bodies)
    for item in parser.structure:
        if trace.full:
            return
        reader.instruction(item["instruction"].upper(), item["value"], item["startline"], item["endline"])
    for (name, _), line in trace.missing.items():
        if (value := reader.above.get(name, trace.order)) is not None:
            trace.slip("arg-above-from", line, name=name, above=str(value.line))


def _as_dockerfile(text: str) -> str:
    """A definition of Apptainer: its image, and `%post` as one script. Other sections are not run while it is made."""
    rows, inside = [], False
    for name, value in re.findall(r"(?m)^[ \t]+(\w+)=(\S+)[ \t]*$", text):  # its own arguments, where a template asks
        text = re.sub(rf"\{{\{{[ \t]*{name}[ \t]*\}}\}}", value.strip("\"'").replace("\\", ""), text)
    for row in text.split("\n"):
        section = re.match(r"[ \t]*%(\w+)", row)
        image = re.match(r"(?i)from[ \t]*:[ \t]*(\S+)", row)
        ended = "POST" if inside and section else ""
        inside = section[1] == "post" if section else inside
        begun = "RUN <<POST" if section and inside else ""
        rows.append(ended or begun or (f"FROM {image[1]}" if image else row if inside else ""))
    return "\n".join([*rows, "POST"] if inside else rows)


def _without_heredocs(text: str) -> tuple[str, dict[int, tuple[int, str]]]:
    """The text with the bodies of here-documents blank, and each body by the row of its instruction."""
    lines = text.split("\n")
    bodies: dict[int, tuple[int, str]] = {}
    row = 0
    while row < len(lines):
        begin = _HEREDOC.search(lines[row]) if re.match(r"\s*(?:RUN|COPY|ADD)\b", lines[row]) else None
        if begin:
            end = row + 1
            while end < len(lines) and lines[end].strip() != begin[2]:
                end += 1
            if end < len(lines):
                bodies[row] = (row + 1, "\n".join(lines[row + 1 : end]))
                for inner in range(row + 1, end + 1):
                    lines[inner] = ""
                row = end
        row += 1
    return "\n".join(lines), bodies


class _DockerReader:
    def __init__(self, trace: Trace, text: str, bodies: dict[int, tuple[int, str]]) -> None:
        self.trace = trace
        self.lines = text.split("\n")
        self.bodies = bodies
        # What stands above the first FROM is for FROM alone; a stage asks for it with an ARG of its own.
        self.above = self.scope = trace.open(None, "above")
        self.stages: dict[str, Scope] = {}
        self.directory: str | None = None
        self.shell = Dialect.SHELL
        self.pipefail = False
        # Templates and here-documents that begin further down are no Dockerfile line by line.
        self.templated = re.search(r"\{[%{]|<<-?\s*[\"']?[A-Za-z_]", text) is not None

    def instruction(self, name: str, value: str, start: int, end: int) -> None:
        line = start + 1
        if name == "FROM":
            self._from(value, line)
        elif name in ("ENV", "ARG"):
            self._set(name, value, start, end)
        elif name == "RUN":
            self._run(start, end)
        elif name == "WORKDIR":
            self.directory = self._filled(value)[0]
        elif name == "SHELL":
            low = value.lower()
            self.shell = Dialect.POWERSHELL if "powershell" in low or "pwsh" in low else Dialect.SHELL
            self.pipefail = "pipefail" in low
        elif name in ("COPY", "ADD"):
            self._copied(value, line)
            if start in self.bodies and self.trace.beside is not None:
                self.trace.beside.write(value.split()[-1], self.bodies[start][1])
        elif name not in (*_OTHERS, "LABEL", "COMMENT"):
            near = _near(name)
            right = re.sub(r"\w+", near[0], self.lines[start], count=1) if near else None
            words = f"{near[0]} is" if near else "does the line before lack a backslash at its end?"
            if near or not self.templated:
                self.trace.slip("instruction-unknown", line, right, what=name, near=words)
            self.trace.unread(line, value, f"`{name}` is not a Dockerfile instruction")

    def _copied(self, value: str, line: int) -> None:
        """`COPY --from=builder /opt/conda /opt/conda` brings an environment with all that is in it."""
        origin = re.match(r"\s*--from=(\S+)", value)
        stage = self.stages.get(origin[1]) if origin else None
        if stage is not None and _WITH_PACKAGES.search(value):
            self.trace.copies.append(Copied(self.trace.tick(), stage.number, self.scope.number, line))

    def _from(self, value: str, line: int) -> None:
        words = [word for word in value.split() if not word.startswith("--")]
        if not words:
            self.trace.unread(line, value, "FROM without an image")
            return
        image, known = self._filled(words[0], self.above)
        parent = self.stages.get(image)
        self.scope = self.trace.open(parent or self.trace.scopes[0], f"stage {line}")
        if len(words) > 2 and words[1].lower() == "as":
            self.stages[words[2]] = self.scope
        self.directory = None
        if parent is None:
            self.trace.stands_on(image, line, self.scope, known)

    def _set(self, name: str, value: str, start: int, end: int) -> None:
        recorder = Recorder(self.trace, scope=self.scope)
        given = value.strip().partition("=")[0] if name == "ARG" else ""
        if given in self.trace.build_arguments:
            value = f'{given}="{self.trace.build_arguments[given]}"'
        elif given:
            self.trace.offered.add(given.upper())
        pairs = list(_PAIR.finditer(value))
        if not pairs:
            key, _, rest = value.strip().partition(" ")
            if name == "ARG" or not rest:
                above = self.above.get(key, self.trace.order)
                text, known = (above.text, above.known) if above is not None else ("", False)
                recorder.set(key, text, start + 1, known=known, how="environment" if name == "ARG" else "shell")
                self.trace.asked.add(key)
                return
            rest = rest.strip()
            text, known = self._filled(rest[1:-1] if rest[:1] in ("'", '"') and rest[-1:] == rest[:1] else rest)
            recorder.set(key, text, start + 1, known=known, text=value)
            return
        for pair in pairs:
            raw = pair[2]
            row = self._row(pair[1], start, end)
            # What ENV reads and nobody set is empty; a base image sets PATH and its like, and X may add to itself.
            read = re.findall(r"(?<!\\)\$(?:\{(\w+)\}|(\w+))", raw) if name == "ENV" and raw[:1] != "'" else []
            for used in (braced or plain for braced, plain in read):
                if used != pair[1] and self.scope.get(used, self.trace.order) is None:
                    recorder.missed(used, row)
                    self.trace.empty.setdefault(used, row)
            text, known = self._filled(raw[1:-1] if raw[:1] in "\"'" else raw)
            recorder.set(pair[1], text, row, known=known, raw=raw, text=pair[0])
            if name == "ARG":
                self.trace.asked.add(pair[1])

    def _row(self, name: str, start: int, end: int) -> int:
        """ENV over several lines: the line on which a name stands."""
        for row in range(start, min(end, len(self.lines) - 1) + 1):
            if re.search(rf"(?<![\w$]){re.escape(name)}=", self.lines[row]):
                return row + 1
        return start + 1

    def _filled(self, text: str, scope: Scope | None = None) -> tuple[str, bool]:
        known = True

        def put(match: re.Match[str]) -> str:
            nonlocal known
            found = (scope or self.scope).get(match[1] or match[3], self.trace.order)
            if found is not None and (found.known or found.text):
                known = known and found.known
                return found.text
            if match[2]:
                return match[2]
            known = False
            return match[0]

        return _VARIABLE.sub(put, text), known

    def _run(self, start: int, end: int) -> None:
        if start in self.bodies:
            row, body = self.bodies[start]
            if not re.search(r"\bpython", self.lines[start]):
                self._script(body, row + 1, stops=bool(re.search(r"-\w*e", self.lines[start].partition("<<")[0])))
            return
        rows = self.lines[start : end + 1]
        rows[0] = re.sub(r"(?i)^(\s*)RUN((?:\s+--\S+)*)", lambda m: m[1] + "   " + " " * len(m[2]), rows[0])
        text = "\n".join(self._joined(row, last=index == len(rows) - 1) for index, row in enumerate(rows))
        text = re.sub(r"\\[\s\\]*\Z", "", text)  # nothing follows the last backslash
        if re.match(r"\s*\[\s*\"", text):
            self._listed(text, start + 1)
        else:
            self._script(text, start + 1, stops=False)

    @staticmethod
    def _joined(row: str, *, last: bool) -> str:
        """Docker drops comment lines and blank ones inside RUN, and takes blanks behind the backslash."""
        if not last and (row.lstrip().startswith("#") or not row.strip()):
            return "\\"
        return re.sub(r"\\[ \t]+$", r"\\", row)

    def _script(self, text: str, line: int, *, stops: bool) -> None:
        recorder = Recorder(self.trace, self.shell, self.trace.open(self.scope, f"run {line}"))
        recorder.directory = self.directory
        recorder.stops, recorder.pipefail = stops, self.pipefail
        if self.shell is Dialect.POWERSHELL:
            text = re.sub(r"(?m)\\$", "`", text)  # Docker has joined the lines before
        before = len(self.trace.invocations)
        read_script(recorder, text, line)
        self._ends(before)

    def _ends(self, before: int) -> None:
        """The image is not made when the last command of a RUN fails, nor one with `&&` behind it."""
        items = self.trace.invocations
        for index, item in enumerate(items[before:], start=before):
            sure = self.pipefail if item.piped else index == len(items) - 1
            if sure or item.after == "&&":
                items[index] = msgspec.structs.replace(item, checked=True)

    def _listed(self, text: str, line: int) -> None:
        words = re.findall(r"\"((?:\\.|[^\"])*)\"", text)
        recorder = Recorder(self.trace, Dialect.SHELL, self.trace.open(self.scope, f"run {line}"))
        recorder.directory, recorder.stops = self.directory, True
        read_script(recorder, shlex.join(words) + "\n", line)


_WITH_PACKAGES = re.compile(r"conda|mamba|venv|(?:site|dist)-packages|\s/usr/local(?:/lib)?/?(?:\s|$)|/opt/\w*env")
_OTHERS = (
    "CMD", "ENTRYPOINT", "EXPOSE", "VOLUME", "USER", "STOPSIGNAL", "HEALTHCHECK", "MAINTAINER", "ONBUILD", "LABEL",
)  # fmt: skip
_INSTRUCTIONS = ("FROM", "ENV", "ARG", "LABEL", "RUN", "WORKDIR", "SHELL", "COPY", "ADD", *_OTHERS)
