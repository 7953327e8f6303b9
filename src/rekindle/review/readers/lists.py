"""Lists of packages: requirements, conda environments and recipes, projects. Each is read as what installs it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

from rekindle.core import codec
from rekindle.knowledge.torch.releases import newest_python
from rekindle.review.packages import by_caret, listed
from rekindle.review.readers.recorder import Recorder
from rekindle.review.readers.script import read_script
from rekindle.review.readers.yaml_nodes import Node, YamlReader, composed
from rekindle.review.trace import PIXI, Admitted, Trace, Word

_Placed = dict[tuple[tuple[str, ...], bool], list[Word]]  # by the options that name the place, and whether it is sure
_SELECTOR = re.compile(r"#\s*\[([^\]]*)\]")
_OF_EXTRA = re.compile(r"""\s*extra\s*([=!]=)\s*['"]([\w.-]+)['"]\s*""")
_SET = re.compile(r"set\s+(\w+)\s*=(.*)", re.DOTALL)


def read_requirements(trace: Trace, text: str) -> None:
    rows = listed(text)
    _ran(trace, ["pip", "install"], rows, last=text.count("\n"))


def _ran(trace: Trace, command: Sequence[str], words: Sequence[Word], *, last: int = 0) -> None:
    Recorder(trace).takes(command, words, last=last)


def read_conda_environment(trace: Trace, text: str) -> None:
    if not re.search(r"(?m)^dependencies:", text):
        _read_conda_list(trace, text)
    elif (root := composed(trace, text)) is not None:
        _CondaReader(trace, text).environment(root)


def _read_conda_list(trace: Trace, text: str) -> None:
    """What `conda list --export` writes, or `--explicit` as addresses; the channels stand in its first comment."""
    channels = [word for name in re.findall(r"^#.*", text, re.MULTILINE) for word in re.findall(r"-c +\S+", name)]
    words = []
    for number, line in enumerate(text.split("\n"), start=1):
        pin = line.partition("#")[0].strip()
        file = re.search(r"([^/]+)/[^/]+/([\w.-]+)-([\w.]+)-([\w.]+)\.(?:conda|tar\.bz2)$", pin)
        pin = f"{file[1]}::{file[2]}={file[3]}={file[4]}" if file else pin
        words += [Word(pin, line, number)] if pin and not pin.startswith("@") else []
    named = [part for each in dict.fromkeys(channels) for part in each.split()]
    _ran(trace, ["conda", "create", "-y", "-n", "base", *named], words, last=words[-1].line if words else 0)


def read_recipe(trace: Trace, text: str) -> None:
    """conda-build's meta.yaml and rattler-build's recipe.yaml: what the package is built and run with."""
    root = composed(trace, _plain(text))
    reader = _CondaReader(trace, text)
    if root is not None:
        reader.recipe(root)


def _plain(text: str) -> str:
    """The recipe without its template: what is set is filled in, and the rest of the template is left out."""
    values: dict[str, str] = {}
    parts: list[str] = []
    at = 0
    while (start := text.find("{", at)) >= 0:
        mark = text[start : start + 2]
        end = text.find({"{%": "%}", "{{": "}}"}[mark], start) if mark in ("{%", "{{") else -1
        if end < 0:
            parts.append(text[at : start + 1])
            at = start + 1
            if mark in ("{%", "{{"):
                break  # nothing closes it, nor any other behind it
            continue
        inside = text[start + 2 : end].strip("- \t\n")
        chosen = _SET.match(inside) if mark == "{%" else None
        if chosen:
            values[chosen[1]] = chosen[2].strip().strip("\"'")
        parts.append(text[at:start].removesuffix("$") if mark == "{{" else text[at:start])
        parts.append(_filled(inside, values) if mark == "{{" else "")
        at = end + 2
    return "".join([*parts, text[at:]])


def _filled(expression: str, values: dict[str, str]) -> str:
    """A variable of the template; a call (`compiler('cuda')`) becomes a word."""
    called = re.match(r"(\w+)\(\s*['\"]?([\w-]*)", expression)
    if called:
        return f"{called[1]}-{called[2]}"
    return values.get(expression.partition("|")[0].strip(), "0")


class _CondaReader(YamlReader):
    def environment(self, root: Node) -> None:
        top = self.mapping(root)
        channels = [word for name in self.listed(top.get("channels")) for word in ("-c", name)]
        name = self.text(top.get("name")) or "base"
        words: list[Word] = []
        pips: list[Word] = []
        for item in self.sequence(top.get("dependencies")):
            line = item.start_mark.line + 1
            if item.id == "scalar":
                words.append(Word(item.value.strip(), item.value, line))
            for inner in self.sequence(self.mapping(item).get("pip")):
                row = inner.start_mark.line + 1
                pips += listed(inner.value, row) if inner.id == "scalar" else []
        _ran(self.trace, ["conda", "create", "-y", "-n", name, *channels], words, last=words[-1].line if words else 0)
        # conda runs pip inside of the environment that it has just made.
        _ran(self.trace, ["conda", "activate"], [Word(name, name, pips[0].line)] if pips else [])
        _ran(self.trace, ["pip", "install"], pips, last=pips[-1].line if pips else 0)

    def recipe(self, root: Node) -> None:
        top = self.mapping(root)
        for output in [root, *self.sequence(top.get("outputs"))]:
            needs = self.mapping(self.mapping(output).get("requirements"))
            words: list[Word] = []
            for part in ("host", "run"):
                for item in self.sequence(needs.get(part)):
                    row = item.start_mark.line
                    chosen = _SELECTOR.search(self.lines[row]) if row < len(self.lines) else None
                    if item.id == "scalar" and not (chosen and not re.search(r"\blinux|\bunix|cuda", chosen[1])):
                        words.append(Word(item.value.strip(), item.value, row + 1))
            _ran(self.trace, ["conda", "create", "-y", "-n", "build", "-c", "conda-forge"], words)
            script = self.mapping(self.mapping(output).get("build")).get("script")
            for item in [*self.sequence(script), *([script] if self.text(script) else [])]:
                if item.id == "scalar":
                    body, first = self.script(item)
                    read_script(Recorder(self.trace), body, first)


# --- TOML -------------------------------------------------------------------------------------------------------------


def read_project(trace: Trace, text: str, chosen: frozenset[str] | None = None, *, pips: bool = False) -> None:
    """pyproject.toml of uv, poetry, pixi or plain, pixi.toml, and the Pipfile of pipenv.

    `chosen`: the extras and groups that a command names; None: any of them may be. `pips`: pip reads it, not uv.
    """
    try:
        data = codec.plain_toml(text)
    except (ValueError, RecursionError) as error:
        trace.unread(getattr(error, "lineno", 1), "", f"not valid TOML: {error}")
        return
    _ProjectReader(trace, text, data | ({"tool": _table(data, "tool") | {"uv": {}}} if pips else {}), chosen).read()


def admitted(asked: str, line: int, *, locked: bool = False) -> Admitted | None:
    """uv and poetry lock a project for each Python that it allows; pip asks only for the one that is there."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        allowed = SpecifierSet(by_caret(asked))
    except InvalidSpecifier:
        return None
    every = [f"3.{minor}" for minor in range(6, int(str(newest_python()).split(".")[1]) + 1)]
    found = tuple(each for each in every if {*allowed.filter([f"{each}.0", f"{each}.20"])})
    return Admitted(found, line, locked) if asked and found else None


def _table(value: Any, *names: str) -> dict[str, Any]:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _rows(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


class _ProjectReader:
    def __init__(self, trace: Trace, text: str, data: dict[str, Any], chosen: frozenset[str] | None) -> None:
        self.recorder = Recorder(trace)
        self.chosen = chosen
        self.pins: dict[str, tuple[str, str]] = {}  # the first extra or group that pins a package, and to what
        self.lines = text.split("\n")
        self.data = data
        tool = _table(data, "tool")
        self.uv, self.poetry = _table(tool, "uv"), _table(tool, "poetry")
        self.pixi = _table(tool, "pixi") or (data if {"workspace", "dependencies", "feature"} & {*data} else {})
        sets = [map(_table, _rows(each)) for each in _rows(self.uv.get("conflicts"))]
        self.apart = [{str(each.get("extra") or each.get("group")) for each in one} for one in sets]
        # pipenv takes what names no place from the first one alone.
        of_pdm = [row for row in _rows(_table(tool, "pdm").get("source")) if isinstance(row, dict)]
        own = {str(each): {"index": row.get("name")} for row in of_pdm for each in _rows(row.get("include_packages"))}
        # What poetry takes from a place of its own, the project names without it.
        told = _table(self.poetry, "dependencies").items()
        own |= {name: {"index": row["source"]} for name, row in told if isinstance(row, dict) and "source" in row}
        self.sources = _table(self.uv, "sources") | own
        of_pdm = [{**row, "explicit": "include_packages" in row} for row in of_pdm]
        of_poetry = [row for row in _rows(self.poetry.get("source")) if isinstance(row, dict)]
        of_poetry = [{**row, "explicit": row.get("priority") == "explicit"} for row in of_poetry]
        rows = [*of_pdm, *_rows(self.uv.get("index")), *of_poetry, *_rows(data.get("source"))]
        self.indexes = {
            str(row["name"]): str(row["url"]) for row in rows if isinstance(row, dict) and {"name", "url"} <= {*row}
        }
        plain = [str(row["url"]) for row in rows if isinstance(row, dict) and "url" in row and not row.get("explicit")]
        self.usual = [self.uv["index-url"]] if isinstance(self.uv.get("index-url"), str) else []
        plain = plain[:1] if "source" in data else plain
        self.usual += [each for each in _rows(self.uv.get("extra-index-url")) if isinstance(each, str)] or plain

    def read(self) -> None:
        project = _table(self.data, "project")
        asked = str(_table(self.poetry, "dependencies").get("python") or project.get("requires-python") or "")
        only = re.fullmatch(r"(?:[=~^]=?\s*)?(3\.\d{1,3})(?:\.[\d*]+)?", asked)
        pinned = str(_table(self.data, "requires").get("python_version") or (only[1] if only else ""))
        self._ran(["uv", "venv", "--python"], [Word(pinned, pinned, self._where("", pinned))] if pinned else [])
        self.recorder.trace.admitted = admitted(asked, self._where("", asked), locked=bool(self.uv or self.poetry))
        self._requirements(_rows(project.get("dependencies")))
        for name, rows in _table(project, "optional-dependencies").items():
            self._requirements(_rows(rows), conditional=name not in (self.chosen or ()), part=name)
        for name, rows in _table(self.data, "dependency-groups").items():
            self._requirements(_rows(rows), conditional=name not in {"dev", *(self.chosen or ())}, part=name)
        self._requirements(_rows(self.uv.get("constraint-dependencies")) if not project.get("dependencies") else [])
        for part in map(_table, _table(self.data, "tool", "hatch", "envs").values()):
            for name, value in _table(part, "env-vars").items():
                self.recorder.set(name, str(value), self._where(name))
            self._requirements(
                [*_rows(part.get("dependencies")), *_rows(part.get("extra-dependencies"))], conditional=True
            )
        self._poetry(_table(self.poetry, "dependencies"))
        self._poetry(_table(self.data, "packages"))
        for group in _table(self.poetry, "group").values():
            self._poetry(_table(group, "dependencies"), conditional=bool(_table(group).get("optional")))
        features = {name: _table(each) for name, each in _table(self.pixi, "feature").items()}
        outer, named = self.recorder, _table(self.pixi, "environments")
        for value in named.values():
            # Each is resolved for itself, of what all of them have and of the features that it names.
            chosen = _rows(value if isinstance(value, list) else _table(value).get("features"))
            self.recorder = outer.inner("job pixi row")
            self._pixi(_joined([self.pixi, *(features.get(str(each), {}) for each in chosen)]))
        self.recorder = outer
        if not named:
            self._pixi(self.pixi)
            for feature in features.values():
                self._pixi(feature, conditional=True)

    def _ran(self, command: Sequence[str], words: Sequence[Word], *, conditional: bool = False) -> None:
        self.recorder.conditional = int(conditional)
        self.recorder.takes(command, words)

    def _where(self, name: str, *needles: str, value: Any = "") -> int:
        """The first line with one of these texts, else with a key of this name, and with its value where one has it."""
        said = str(value.get("version", "") if isinstance(value, dict) else value)
        for needle, held in product(needles or (f"{name} =", f"{name}=", f'"{name}"'), dict.fromkeys((said, ""))):
            for row, line in enumerate(self.lines):
                if needle in line and held in line and not line.lstrip().startswith("#"):
                    return row + 1
        return 1

    def _words(self, rows: Iterable[Any]) -> list[Word]:
        texts = [row for row in rows if isinstance(row, str)]
        return [Word(text, text, self._where("", f'"{text}"', f"'{text}'", text)) for text in texts]

    def _requirements(self, rows: Iterable[Any], *, conditional: bool = False, part: str = "") -> None:
        """`part`: the extra or the group that asks; a place for another one is not for it."""
        usual: list[Word] = []
        placed: _Placed = {}
        for word in self._words(rows):
            self._together(word, part)
            name = re.match(r"[\w.-]+", word.text)
            source = self.sources.get(name[0]) if name else None
            choices = [each for each in (source if isinstance(source, list) else [source]) if isinstance(each, dict)]
            choices = [{**each, "marker": _of_part(str(each.get("marker") or ""), part)} for each in choices]
            choices = [each for each in choices if each["marker"] is not None]
            choices = [each for each in choices if not part or each.get("extra", each.get("group", part)) == part]
            if self.chosen is not None:
                choices = [each for each in choices if {each.get("extra"), each.get("group")} <= {None, *self.chosen}]
            if not choices:
                usual.append(word)
            elsewhere = _elsewhere([choice["marker"] for choice in choices])
            if elsewhere and ";" not in word.text:
                usual.append(Word(f"{word.text}; {elsewhere}", word.raw, word.line))
            for choice in choices:
                own = str(choice.get("url") or choice.get("git") or "")
                address = self.indexes.get(str(choice.get("index"))) or own
                several = len(choices) > 1 and ("extra" in choice or "group" in choice)
                taken, place = self._from(word, address, choice["marker"], is_index="index" in choice)
                placed.setdefault((place, conditional or several), []).append(taken)
        self._placed(("uv", "pip", "install"), placed)
        self._ran(["uv", "pip", "install", *self._extra()], usual, conditional=conditional)

    def _together(self, word: Word, part: str) -> None:
        """uv locks every extra and group at once, unless `tool.uv.conflicts` says that two exclude each other."""
        pin = re.fullmatch(r"([\w.-]+)(?:\[.*\])?\s*===?\s*([\w.+]+)", word.text) if part and self.sources else None
        first, version = self.pins.setdefault(pin[1], (part, pin[2])) if pin else (part, "")
        if pin and version != pin[2] and not any({first, part} <= each for each in self.apart):
            pair = {"name": pin[1], "one": version, "first": first, "other": pin[2], "part": part}
            self.recorder.trace.slip("extras-contradict", word.line, **pair)
            self.apart.append({first, part})  # said once

    def _extra(self) -> list[str]:
        backend = _table(self.uv, "pip").get("torch-backend") or self.uv.get("torch-backend")
        found = ["--torch-backend", str(backend)] if backend else []
        found += ["--exclude-newer", str(day)] if (day := self.uv.get("exclude-newer")) else []
        # uv installs these last, beside the torch that is there, or gives their build a torch of its own.
        apart = [*_rows(self.uv.get("no-build-isolation-package")), *_table(self.uv, "extra-build-dependencies")]
        found += [f"--no-build-isolation-package={name}" for name in apart]
        return found + [word for address in self.usual for word in ("--extra-index-url", address)]

    def _placed(self, command: Sequence[str], placed: _Placed) -> None:
        """Packages of one place are one command, as they are resolved at once: a companion keeps to its torch."""
        for (options, conditional), words in placed.items():
            self._ran([*command, *options], words, conditional=conditional)

    def _from(self, word: Word, address: str, marker: str, *, is_index: bool) -> tuple[Word, tuple[str, ...]]:
        """A package with a place of its own: an index, or the file itself."""
        if is_index or not address:
            text = f"{word.text}; {marker}" if marker and ";" not in word.text else word.text
            options = ["--index-url", address] if address else self._extra()
        else:
            name = re.match(r"[\w.-]+", word.text)
            text, options = f"{name[0] if name else ''} @ {address}", []
        return Word(text, word.raw, word.line), tuple(options)

    def _poetry(self, rows: dict[str, Any], *, conditional: bool = False) -> None:
        usual: list[Word] = []
        placed: _Placed = {}
        for name, value in rows.items():
            if name == "python":
                continue
            line = self._where(name)
            for choice in value if isinstance(value, list) else [value]:
                row = choice if isinstance(choice, dict) else {"version": choice}
                version = by_caret(str(row.get("version") or "*"))
                text = f"{name}{version}" + (f"; {row['markers']}" if row.get("markers") else "")
                address = str(row.get("url") or row.get("git") or "")
                index = self.indexes.get(str(row.get("source") or row.get("index")))
                word = Word(text, text, line)
                if address or index:
                    taken, place = self._from(word, index or address, "", is_index=bool(index))
                    placed.setdefault((place, conditional), []).append(taken)
                else:
                    usual.append(word)
        self._placed(("uv", "pip", "install"), placed)
        options = [word for address in self.usual for word in ("--extra-index-url", address)]
        self._ran(["pip", "install", *options], usual, conditional=conditional)

    def _pixi(self, rows: dict[str, Any], *, conditional: bool = False) -> None:
        channels = _rows(rows.get("channels")) or _rows(_table(self.pixi, "workspace").get("channels"))
        channels = channels or _rows(_table(self.pixi, "project").get("channels"))
        named = [word for name in channels if isinstance(name, str) for word in ("-c", name)]
        parts = [rows, *(_table(each) for key, each in _table(rows, "target").items() if "linux" in key)]
        for part in parts if rows else ():
            words = [
                Word(f"{name}{_conda_version(value)}", name, self._where(name, value=value))
                for name, value in _table(part, "dependencies").items()
            ]
            self._ran(["conda", "create", "-y", "-n", PIXI, *named], words, conditional=conditional)
            self._ran(["conda", "activate"], [Word(PIXI, PIXI, 1)], conditional=conditional)
            self._pypi(_table(part, "pypi-dependencies"), rows, conditional=conditional)

    def _pypi(self, rows: dict[str, Any], around: dict[str, Any], *, conditional: bool) -> None:
        options = _table(around, "pypi-options") or _table(self.pixi, "pypi-options")
        indexes = [options.get("index-url"), *_rows(options.get("extra-index-urls"))]
        words = [word for each in indexes if isinstance(each, str) for word in ("--extra-index-url", each)]
        placed: _Placed = {}
        for name, value in rows.items():
            row = value if isinstance(value, dict) else {"version": value}
            own = ["--index-url", str(row["index"])] if row.get("index") else words
            address = row.get("url") or row.get("git") or row.get("path")
            text = f"{name} @ {address}" if address else name + by_caret(str(row.get("version") or "*"))
            text = "." if row.get("path") in (".", "./") else text  # the project itself
            line = self._where(name, value=value)
            placed.setdefault((tuple(own), conditional), []).append(Word(text, text, line))
        self._placed(("pip", "install"), placed)


def _of_part(marker: str, part: str) -> str | None:
    """The marker of a place without what it says of extras; None where it never holds for this one."""
    if not part or "(" in marker:
        return marker
    ways: list[str] = []
    for way in marker.split(" or "):
        parts = [(each, _OF_EXTRA.fullmatch(each)) for each in way.split(" and ")]
        if all((said[2] == part) is (said[1] == "==") for _, said in parts if said):
            ways.append(" and ".join(each for each, said in parts if not said))
    return None if not ways else "" if "" in ways else " or ".join(ways)


def _elsewhere(markers: list[str]) -> str:
    """Where none of the places of uv's sources holds, the package comes from the usual index; empty: not known."""
    opposite = {"==": "!=", "!=": "=="}
    parts = [
        re.fullmatch(r"\s*(\w+)\s*(==|!=)\s*(['\"][^'\"]*['\"])\s*", part)
        for each in markers
        for part in each.split(" or ")
    ]
    return " and ".join(f"{part[1]} {opposite[part[2]]} {part[3]}" for part in parts if part) if all(parts) else ""


def _joined(tables: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Features as the one environment that they make."""
    found: dict[str, Any] = {}
    for key, value in (each for table in tables for each in table.items()):
        both = _joined([found[key], value]) if isinstance(value, dict) and isinstance(found.get(key), dict) else None
        found[key] = value if both is None else both
    return found


def _conda_version(value: Any) -> str:
    version = str(value.get("version", "*") if isinstance(value, dict) else value)
    build = str(value.get("build", "")) if isinstance(value, dict) else ""
    if version == "*":
        return f"=*={build}" if build else ""
    plain = version if version[:1] in "<>=!~" else f"={version}"
    return f"{plain}={build}" if build else plain
