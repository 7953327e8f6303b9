"""Writes what a reader sees into the trace: one way to record a command and an assignment, whatever the language."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice, product
from typing import Any

import msgspec

from rekindle.review.document import Dialect
from rekindle.review.other_files import OtherFile, is_own_folder
from rekindle.review.readers.kinds import read_as
from rekindle.review.trace import (
    GIVEN,
    LONGEST_VALUE,
    Assignment,
    Invocation,
    Redirect,
    Scope,
    Trace,
    Value,
    Word,
    program_of,
)

_WORLDS = 16
_UNSET = Value("", True, 0, False, 0)
_NAME = re.compile(r"\w+")
_DEFINE = re.compile(r"-D([A-Za-z_]\w*)(?::\w+)?=(.*)\Z", re.DOTALL)
# A Dockerfile, or Apptainer's, that a script writes.
_RECIPE = re.compile(r"(?:[ \t]*(?:#.*|ARG .*)?\n)*(?:FROM[ \t]+\S|Bootstrap:)", re.IGNORECASE)
# They name a place before the program.
_INSIDE = ("singularity exec", "apptainer exec")
# What `uv run` and `uvx` install for one program, as `uv pip install` spells it.
_BROUGHT = {"--with": "", "-w": "", "--with-requirements": "-r", "--with-editable": "-e", "-p": "--python"} | {
    each: each
    for each in ("--python", "--index", "--default-index", "--index-url", "--extra-index-url", "-f", "--find-links")
}
# Programs that only start another one, with the options of theirs that take a value.
_WRAPPERS: dict[str, frozenset[str]] = {
    "sudo": frozenset({"-u", "-g", "-h", "-p"}),
    "nice": frozenset({"-n"}),
    "exec": frozenset({"-a"}),
    "env": frozenset({"-u", "-C"}),
    "ionice": frozenset({"-c", "-n"}),
    "taskset": frozenset({"-c"}),
    "stdbuf": frozenset({"-o", "-e", "-i"}),
    "timeout": frozenset({"-s", "-k"}),
    "start": frozenset({"/d", "/affinity"}),
    "conda run": frozenset({"-n", "--name", "-p", "--prefix", "--cwd"}),
    "uv run": frozenset({"--project", "--extra", "--group", "--package", "--directory", "--env-file"}) | {*_BROUGHT},
    **dict.fromkeys(("poetry run", "pipx run", "pdm run", "pipenv run", "hatch run", "rye run"), frozenset[str]()),
    **dict.fromkeys(("time", "nohup", "command", "@", "&"), frozenset[str]()),
    **dict.fromkeys(("pixi run", "mamba run", "micromamba run"), frozenset({"-e", "-n", "--environment", "-p"})),
    "srun": frozenset({"-n", "-c", "-p", "-N", "-t", "--container-image", "--container-mounts"}),
    "xargs": frozenset({"-n", "-L", "-I", "-P", "-d", "-a"}),
    **dict.fromkeys(_INSIDE, frozenset({"-B", "--bind", "--env", "-H", "--pwd", "--home"})),
}


# The image that Apptainer, or Slurm with pyxis, starts a program in.
_CONTAINER = re.compile(r"(?:docker://|--container-image[= ](?:docker://)?)(\S+)")

# Variables that hold a command, which the program that is started behind them runs: AUTOMATIC1111's and Forge's.
_RUN_LATER = frozenset({"TORCH_COMMAND"})

# Files that set an environment up and are nobody's own script: what they do is known.
_ELSEWHERE = re.compile(
    r"(?i)activate|vcvars|vsdevcmd|devshell|launch-vsdevshell|conda|mamba|bashrc|bash_profile|\.profile|zshrc|setvars"
    r"|nvm\.sh|cargo|/etc/|venv|env\.sh$|sdkman|lmod|modules|ros/|<\(|^-"
)


class Recorder:
    """A place in the trace: the language, the variables in sight, the current folder, what is conditional."""

    def __init__(
        self, trace: Trace, dialect: Dialect = Dialect.SHELL, scope: Scope | None = None, *, system: str | None = None
    ) -> None:
        self.trace = trace
        self.dialect = dialect
        self.scope = scope or trace.scopes[0]
        self.system = system
        self.directory: str | None = None
        self.folders: list[str | None] = []
        self.conditional = 0
        self.bodies: tuple[tuple[int, int], ...] = ()  # which branch of which `if`, the outermost first
        self.reached = True
        self.child = False
        self.stops = False  # the shell ends at the first failure
        self.pipefail = False

    def inner(self, label: str) -> Recorder:
        """For what runs in this place: with a label in a scope of its own, else in this one."""
        scope = self.trace.open(self.scope, label) if label else self.scope
        made = Recorder(self.trace, self.dialect, scope, system=self.system)
        made.directory, made.conditional, made.bodies = self.directory, self.conditional, self.bodies
        return made

    def lookup(self, name: str, at: int | None = None) -> Value | None:
        return self.scope.get(name, self.trace.order if at is None else at, windows=self.dialect.windows)

    def sure(self, name: str, at: int | None = None) -> str | None:
        """The one value that a variable has here, whoever starts the script."""
        found = self.lookup(name, at)
        if found is None or found.branch or not found.known or name.upper() in self.trace.offered:
            return None
        return found.text

    def worlds(self, text: str) -> Iterator[None]:
        """Once for each of the values that branches before it gave the variables of a command that installs."""
        names = set(_NAME.findall(text)) if "install" in text and not self.conditional else set()
        windows, order, outer = self.dialect.windows, self.trace.order, self.scope
        set_in_branches = [name for name in names if (found := self.lookup(name)) is not None and found.branch]
        ways = _ways({name: outer.either(name, order, windows=windows) for name in sorted(set_in_branches)})
        self.conditional += len(ways) > 1
        for way in ways:
            if len(ways) > 1:
                self.scope = self.trace.open(outer, "")
            for name, value in way.items():
                self.scope.put(name, value)
            yield
        self.scope = outer
        self.conditional -= len(ways) > 1

    def branches(self, parts: Iterable[tuple[Callable[[], bool | None], Callable[[], None]]]) -> None:
        """Whether each holds, and its body: the branch that is taken where that is known, else all that may be."""
        before = after = self.directory
        may = False
        self.conditional += 1
        outer, group = self.bodies, self.trace.tick()
        for number, (asked, body) in enumerate(parts):
            self.directory = before  # every branch starts where the `if` stands
            answer = asked()
            if answer is not False:
                sure = answer is True and not may
                self.conditional -= sure
                self.bodies = outer if sure else (*outer, (group, number))
                body()
                self.bodies = outer
                self.conditional += sure
                after, may = self.directory if after == before else after, True
            if answer:
                break
        self.conditional -= 1
        self.directory = after

    def glued(self, before: Word, after: Word) -> Word:
        """One word that the grammar took for two: `a-$X-$Y.whl` ends at the second `$` for it."""
        name = re.match(r"[A-Za-z_]\w*", after.raw) if before.raw.endswith("$") else None
        value = self.lookup(name[0]) if name else None
        text = before.text.removesuffix("$") if value is not None else before.text
        rest = after.text[name.end() :] if name and value is not None else after.text
        known = before.known and after.known and (name is None or (value is not None and value.known))
        whole = text + (value.text if value is not None else "") + rest
        return Word(whole, before.raw + after.raw, before.line, before.quoted, known)

    def missed(self, name: str, line: int) -> None:
        """A variable that nobody set so far."""
        self.trace.missing.setdefault((name, self.dialect), line if self.trace.at is None else self.trace.at)

    @contextmanager
    def other(self, word: Word, line: int) -> Iterator[OtherFile | None]:
        """Another file that is run in this shell: all that is noted meanwhile stands at the line that runs it."""
        trace, outer = self.trace, self.trace.at
        found = None
        if trace.files is not None and not trace.full:
            found = trace.files.open(word.text, self.directory) or trace.files.open(word.raw, self.directory)
        if found is None and trace.files is not None and _ELSEWHERE.search(word.text) is None:
            name = re.split(r"[\\/]", word.text.strip("\"'"))[-1]
            trace.slip("other-file", line, name=name[:80])
        if found is not None:
            trace.at = line if outer is None else outer
            trace.opened.setdefault(trace.at, found.name)
        try:
            yield found
        finally:
            trace.at = outer

    def set(self, name: str, value: str, line: int, *, known: bool = True, raw: str = "", **seen: Any) -> Assignment:
        """Note an assignment; where it stands (order, language, scope, condition) is filled in here."""
        line = line if self.trace.at is None else self.trace.at
        # A long text that the script carries with it is no value that grew.
        carried = len(raw) > LONGEST_VALUE and len(raw) * 1.1 >= len(value)
        if carried or not self.trace.afford(value, line):
            value, known = value[:200], False
        known = known and GIVEN not in value
        if not known and (not value or "${{" in value or "$(" in value):
            value = f"${name}"  # what nobody knows is not nothing
        if self.trace.offered and any(each.upper() in self.trace.offered for each in _NAME.findall(raw[:200])):
            self.trace.offered.add(name.upper())
        item = Assignment(
            name=name,
            value=value,
            line=line,
            known=known,
            raw=raw or value,
            order=self.trace.tick(),
            dialect=self.dialect,
            conditional=self.conditional > 0,
            scope=self.scope.number,
            **seen,
        )
        self.trace.assignments.append(item)
        if item.how in ("environment", "shell"):
            exported = item.how == "environment"
            own = (self.bodies or ((item.order, 0),)) if item.conditional else ()
            self.scope.put(item.name, Value(value, known, item.line, exported, item.order, own))
        for part in re.split(r";|&&", value) if name.upper() in _RUN_LATER and known else ():
            self.run([Word(word, word, line) for word in part.strip("\"' ").split()], line, line, part)
        return item

    def run(self, words: Sequence[Word], line: int, last: int, text: str, **said: Any) -> Invocation | None:
        """Note a program that is started, without what only wraps it; where it stands is filled in here."""
        seen = Invocation(words=tuple(words), line=line, last=last, text=text, **said)
        if self.trace.at is not None:
            seen = moved(seen, self.trace.at)
        self.takes(["uv", "pip", "install"], list(_brought(seen.words)))
        self._configures(seen.words)
        words, inner = unwrapped(seen.words)
        if not words:
            return None
        inside = _CONTAINER.search(" ".join(word.text for word in seen.words[:20])) if words is not seen.words else None
        if inside is not None:
            # What starts it inside of a container says the image.
            place = self.trace.open(self.scope, "job container")
            self.trace.stands_on(inside[1].replace("#", "/"), seen.line, place, "$" not in inside[1])
        words = [msgspec.structs.replace(word, known=False) if GIVEN in word.text else word for word in words]
        words = self._of_source(words)
        prefix = (*seen.prefix, *self._prefix(inner))
        item = msgspec.structs.replace(
            seen,
            program=program_of(words[0].text),
            words=tuple(words),
            text=seen.text.strip(),
            order=self.trace.tick(),
            dialect=self.dialect,
            scope=self.scope.number,
            directory=self.directory,
            checked=seen.checked or self.stops,
            conditional=self.conditional > 0,
            pipefail=self.pipefail,
            prefix=prefix,
            reached=self.reached,
            child=self.child,
            system=self.system,
        )
        self.trace.invocations.append(item)
        edits = item.program in ("sed", "perl") and any(word.startswith(("-i", "-pi")) for word in item.arguments)
        for word in words[2:] if edits else ():
            if self.trace.beside is not None:
                self.trace.beside.changes(word.text)
        if item.program in ("cmake", "cmake3", "ccmake") or item.words[0].text.startswith("-D"):
            for name, value, word in defines(item.words):
                self.set(name, value, word.line, known=word.known, how="cmake", raw=word.raw, text=item.text)
        return item

    def _of_source(self, words: list[Word]) -> list[Word]:
        """`poetry add torch --source cuda` takes it from the index that `poetry source add cuda …` named."""
        texts = [word.text for word in words]
        if texts[:3] == ["poetry", "source", "add"] and "://" in texts[-1]:
            self.trace.sources[texts[-2]] = texts[-1]
        elif texts[:2] == ["poetry", "add"] and "--source" in texts[:-1]:
            at = texts.index("--source")
            if index := self.trace.sources.get(texts[at + 1]):
                option = (
                    msgspec.structs.replace(words[at], text="--index-url"),
                    msgspec.structs.replace(words[at + 1], text=index),
                )
                return [*words[:at], *option, *words[at + 2 :]]
        return words

    def _configures(self, words: Sequence[Word]) -> None:
        """`pip config set global.index-url …` holds for every pip that follows, in other shells too."""
        told = re.search(
            r"\bpip[\d.]*( \S+)*? config( --\w+)* set \w+\.([\w-]+) \S+\Z", " ".join(each.text for each in words[:9])
        )
        place = self.scope
        while place.parent is not None and place.label.startswith(("run ", "step", "subshell")):
            place = place.parent
        if told:
            name, value = "PIP_" + told[3].upper().replace("-", "_"), words[-1]
            place.put(name, Value(value.text, value.known, value.line, True, self.trace.tick()))

    def takes(self, command: Sequence[str], words: Sequence[Word], *, last: int = 0) -> None:
        """A command that a list stands for, noted at the line of its first word; nothing where it has none."""
        if words:
            first = words[0].line
            text = " ".join([*command, *(word.raw for word in words[:8])])
            head = (Word(part, part, first) for part in command)
            self.run((*head, *words), first, max(first, last), text, checked=True, listed=True)

    def _prefix(self, words: Sequence[Word]) -> list[Assignment]:
        """`env X=1 program`: for this one program."""
        pairs = [(word.text.partition("="), word) for word in words if re.match(r"[A-Za-z_]\w*=", word.text)]
        return [self.before(name, msgspec.structs.replace(word, text=value)) for (name, _, value), word in pairs]

    def before(self, name: str, value: Word) -> Assignment:
        """`X=1 program`"""
        return Assignment(
            name=name,
            value=value.text,
            line=value.line,
            order=self.trace.order,
            how="prefix",
            dialect=self.dialect,
            known=value.known,
            raw=value.raw,
            scope=self.scope.number,
        )

    def go(self, folder: str, *, push: bool = False) -> None:
        if push:
            self.folders.append(self.directory)
        self.directory = None if is_own_folder(folder) else joined(self.directory, folder)

    def wrote(self, text: str, redirects: Sequence[Redirect], names: Sequence[str] = (), begins: int = 0) -> None:
        """A file that the script writes itself, for the commands that read it."""
        values = {name: self.lookup(name) for name in re.findall(r"\$\{?(\w+)", text)}
        for name, value in values.items():
            for spelled in (f"${{{name}}}", f"${name}") if value is not None else ():
                text = text.replace(spelled, value.text if value is not None else "")
        if begins and _RECIPE.match(text):
            read_as(self.trace, Dialect.DOCKERFILE, "\n" * begins + text.replace("\\\\\n", "\\\n"))
        targets = [(each, False) for each in names if each[:1] != "-"]
        for target, more in [*targets, *((each.target, each.sign == ">>") for each in redirects)]:
            if self.trace.beside is not None:
                self.trace.beside.write(target.strip("\"'"), text, more=more)

    def moves(self, name: str, given: Sequence[str]) -> None:
        """`cd`, `pushd` and `popd`, by all of their names."""
        if name in ("cd", "chdir", "set-location", "sl") and given:
            self.go(given[0])
        elif name in ("pushd", "push-location") and given:
            self.go(given[0], push=True)
        elif name in ("popd", "pop-location"):
            self.directory = self.folders.pop() if self.folders else None


def _ways(several: dict[str, list[Value]]) -> list[dict[str, Value]]:
    """What variables hold together: what one branch sets goes with what the same branch sets of the others."""
    groups: dict[int, dict[int, None]] = {}
    for values in several.values():
        for group, body in (each for value in values for each in value.bodies):
            groups.setdefault(group, {})[body] = None
    for values in several.values():
        for group in {each for value in values for each, _ in value.bodies}:
            if not values[-1].branch or len(groups[group]) == 1:
                groups[group][-1] = None  # none of them, and what stood before
    found: dict[tuple[str, ...], dict[str, Value]] = {}
    for choice in islice(product(*groups.values()), 1000):
        chosen = {*zip(groups, choice, strict=True)}
        way = {name: next((v for v in values if chosen >= {*v.bodies}), _UNSET) for name, values in several.items()}
        if len(found) < _WORLDS and not (_UNSET in way.values() and max(choice) < 0):
            found.setdefault(tuple(value.text for value in way.values()), way)
    return [*found.values()]


def defines(words: Sequence[Word]) -> Iterator[tuple[str, str, Word]]:
    """`-DNAME=VALUE` and `-D NAME=VALUE`: each name, its value, and the word that says it."""
    for index, word in enumerate(words):
        apart = index > 0 and words[index - 1].text == "-D"
        match = _DEFINE.match(f"-D{word.text}" if apart else word.text)
        if match:
            yield match[1], match[2].strip("\"'"), word


def moved(item: Invocation, line: int) -> Invocation:
    """A command of another file, as if it stood at the line that runs that file."""
    return msgspec.structs.replace(
        item,
        line=line,
        last=line,
        words=tuple(msgspec.structs.replace(word, line=line) for word in item.words),
        redirects=tuple(msgspec.structs.replace(each, line=line) for each in item.redirects),
        prefix=tuple(msgspec.structs.replace(each, line=line) for each in item.prefix),
    )


def unwrapped(words: Sequence[Word]) -> tuple[Sequence[Word], list[Word]]:
    """The program that is really started, and what `env` and its like were given before it."""
    given: list[Word] = []
    for _ in range(6):
        if not words:
            break
        name = program_of(words[0].text)
        two = f"{name} {words[1].text}" if len(words) > 1 else ""
        key = two if two in _WRAPPERS else name
        if key not in _WRAPPERS:
            break
        rest, placed = list(words[2 if key == two else 1 :]), False
        while rest:
            text = rest[0].text
            if text in _WRAPPERS[key]:
                rest = rest[2:]
            elif text.startswith("-") or (key == "start" and (text.startswith("/") or rest[0].quoted)):
                rest = rest[1:]
            elif key == "env" and re.match(r"\w+=", text):
                given.append(rest.pop(0))
            elif (key == "timeout" and re.match(r"\d", text)) or (key in _INSIDE and not placed):
                placed = True
                rest = rest[1:]
            else:
                break
        if key == "sudo":
            while rest and re.match(r"[A-Za-z_]\w*=", rest[0].text):
                given.append(rest.pop(0))
        if not rest:
            break
        words = rest
    return words, given


def _brought(words: Sequence[Word]) -> Iterator[Word]:
    """The options of `uv run --with …`; nothing where it brings nothing."""
    begin = re.match(r"uv run |uv tool run |uvx ", " ".join(word.text for word in words[:4]) + " ")
    rest = iter(words[len(begin[0].split()) :] if begin else ())
    if not any(word.text.startswith(("--with", "-w")) for word in words[:40]):
        return
    for word in rest:
        if not word.text.startswith("-"):
            return
        name, sign, value = word.text.partition("=")
        after = next(rest, None) if name in _WRAPPERS["uv run"] and not sign else None
        given = msgspec.structs.replace(word, text=value) if sign else after
        if given is not None and (option := _BROUGHT.get(name)) is not None:
            yield from [Word(option, option, word.line)] if option else []
            yield given


def joined(folder: str | None, more: str) -> str | None:
    """A folder seen from another; None is where the script was started."""
    more = more.strip().rstrip("/\\") or more.strip()
    if not more:
        return folder
    if re.match(r"(?:[A-Za-z]:|[\\/~$%]|\$\{)", more) or more.startswith("-"):
        return more
    parts = [part for part in re.split(r"[\\/]", folder or "") if part]
    lead = "/" if (folder or "").startswith("/") else ""
    for part in re.split(r"[\\/]", more):
        if part in ("", "."):
            continue
        if part == ".." and parts and parts[-1] != ".." and not re.match(r"[%$!]", parts[-1]):
            parts.pop()
        else:
            parts.append(part)
    return lead + "/".join(parts) if parts else lead or ""
