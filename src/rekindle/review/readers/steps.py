"""What holds commands: GitLab, Azure, CircleCI, Travis, Jenkins, Ansible, cloud-init, cog, Kubernetes, compose.

Whatever the form, a key says which shell its value is for.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import islice, product

import msgspec

from rekindle.knowledge.builds.script_rules import cog_line
from rekindle.model.cuda_line import index_of
from rekindle.model.torch_pin import CPU
from rekindle.review.document import Dialect
from rekindle.review.packages import listed
from rekindle.review.readers.dockerfile import read_dockerfile
from rekindle.review.readers.recorder import Recorder
from rekindle.review.readers.script import read_script
from rekindle.review.readers.yaml_nodes import Node, YamlReader, composed
from rekindle.review.trace import Scope, Trace, WithoutCards, Word

# In the order in which they run, wherever they stand.
_COMMANDS = (
    "onCreateCommand", "updateContentCommand", "postCreateCommand", "postStartCommand", "bootcmd", "runcmd",
    "before_install", "install", "setup", "before_script", "entrypoint", "command", "commands", "cmd", "cmds", "shell",
    "raw", "bash", "script", "pwsh", "powershell", "run", "args", "after_script",
)  # fmt: skip
_VARIABLES = ("variables", "env", "environment", "vars", "containerEnv", "remoteEnv")
_BUILD = {"context", "dockerfile", "dockerFile", "dockerfile_inline", "args"}
_ROWS = 40
_PYTHONS = ("versionSpec", "python_version", "python")
# Ansible's modules for the packages of a system, where each takes its list; cloud-init's and Cog's own lists.
_SYSTEM = {"apt": ("name", "pkg"), **dict.fromkeys(("package", "dnf", "yum", "zypper", "pacman"), ("name",))}
_SYSTEM_LISTS = ("packages", "system_packages")
# `image 'x'`, `sh 'x'`, `bat(script: "x")`, `NAME = 'x'` of Jenkins.
_OF_JENKINS = re.compile(
    r"(?s)\b(image|sh|bat|powershell|pwsh|[A-Z_]\w*(?=\s*=))\s*[=:(]?\s*(?:script:\s*)?('{3}|\"{3}|'|\")(.*?)(?<!\\)\2"
)
_JENKINS_SHELLS = {
    "sh": Dialect.SHELL,
    "bat": Dialect.BATCH,
    **dict.fromkeys(("powershell", "pwsh"), Dialect.POWERSHELL),
}
# `{{ name }}` of Ansible, `<< parameters.name >>` of CircleCI, `$(name)` of Azure.
_FILLED = re.compile(r"\$?\{\{[ \t]*\.?([\w.]+)[ \t]*\}\}|<<[ \t]*([\w.]+)[ \t]*>>|\$\((\w+)\)")


def read_steps(trace: Trace, text: str) -> None:
    # JSON with comments is YAML but for these and for tabs.
    if re.search(r"(?m)^[ \t]*(?:pipeline|node\b.*)\s*\{", text):
        _read_jenkins(trace, text)
        return
    plain = re.sub(r"(?m)^[ \t]*//.*", "", text).replace("\t", " ") if text.lstrip()[:1] in ("{", "/") else text
    root = composed(trace, plain)
    reader = _StepsReader(trace, text)
    for part in reader.items(root) if root is not None and root.id == "sequence" else [root]:
        reader.part(part, trace.scopes[0] if part is root else trace.open(trace.scopes[0], "job"))


def _read_jenkins(trace: Trace, text: str) -> None:
    """The images, the variables and the commands of Jenkins, in their order; an image holds until the next one."""
    recorder = Recorder(trace, scope=trace.open(trace.scopes[0], "job"))
    plain = re.sub(r"(?m)^[ \t]*//.*", "", text)
    for found in _OF_JENKINS.finditer(plain):
        line = plain.count("\n", 0, found.start(3)) + 1
        kind, said = found[1], re.sub(r"\\([\\'\"])", r"\1", found[3])
        if kind in _JENKINS_SHELLS:
            recorder.stops, recorder.dialect = True, _JENKINS_SHELLS[kind]
            read_script(recorder, said + "\n", line)
        elif kind == "image":
            recorder.scope = trace.open(recorder.scope, "job image")
            trace.stands_on(said, line, recorder.scope, "$" not in said)
        else:
            recorder.set(kind, said, line, known="$" not in said)


def read_compose(trace: Trace, text: str) -> None:
    root = composed(trace, text)
    reader = _StepsReader(trace, text)
    for name, node in reader.mapping(reader.mapping(root).get("services")).items():
        first = trace.order
        reader.part(node, trace.open(trace.scopes[0], f"job {name}"))
        if not reader.asks_for_cards(reader.mapping(node)):
            line = node.start_mark.line  # that of its name, one above its first key
            trace.without_cards.append(WithoutCards(name, line, range(first, trace.order + 1)))


class _StepsReader(YamlReader):
    def part(self, node: Node | None, scope: Scope, around: dict[str, Node] | None = None) -> None:
        """What a mapping sets, the image it runs in, its commands, then its parts. `around`: what its like inherit."""
        given = self.mapping(node)
        if self.trace.full or not given:
            return
        parents = [self.text(given.get("extends")) or "", *self.listed(given.get("extends"))]
        for name in parents if around else ():
            given = {**self.mapping((around or {}).get(name)), **given}
        for key in _VARIABLES:
            self.variables(given.get(key), scope)
        for key in _PYTHONS:
            self._python(given.get(key), scope)
        build = given.get("build")
        built = self.text(build) is not None or bool(_BUILD & {*self.mapping(build)})
        if built or "dockerFile" in given:
            self._build(build if built else node, given)
        elif (image := self.text(given.get("image")) or self.text(self.path(given.get("image"), "name"))) is not None:
            self._image(image, given["image"], scope)
        elif named := re.fullmatch(
            r"(?:docker:)?([\w.-]+/\S+:\S+)", "".join(self._said(given, "container", "image_id"))
        ):
            self._image(named[1], given.get("container") or given["image_id"], scope)
        self.part(given.get("default"), scope)
        top = scope.number == 0
        shared = {key: given[key] for key in ("before_script",) if top and key in given and "script" not in given}
        shared |= {key: each for key, each in self.mapping(given.get("default")).items() if key == "before_script"}
        self._packages(given, scope)
        windows = "windows" in " ".join(self._said(given, "pool", "tags", "vmImage")).lower()
        for key in _COMMANDS:
            whole = {name.rpartition(".")[2]: each for name, each in given.items()}
            found = whole.get(key, (around or {}).get(key) if "script" in given and key == "before_script" else None)
            if found is not None and key not in shared:
                starts = self.listed(given.get("command")) if key == "args" else []
                self._commands(key, found, scope, starts, windows=windows)
        for name, each in given.items():
            if (
                name in (*_VARIABLES, *_COMMANDS)
                or (name == "default" and self.mapping(each))
                or name.startswith(".")
                or (name == "build" and built)
            ):
                continue
            for item in self.items(each) if each.id == "sequence" else [each]:
                own = top and (name == "jobs" or (each.id == "mapping" and "script" in self.mapping(each)))
                jobs = list(self.mapping(item).values()) if name == "jobs" and each.id == "mapping" else [item]
                for job, row in ((part, row) for part in jobs for row in (self._rows(part) if own else [{}])):
                    inner = self.trace.open(scope, f"job {name}{' row' if row else ''}") if own else scope
                    for key, value in row.items():
                        Recorder(self.trace, scope=inner).set(key, value.value, value.start_mark.line + 1)
                    self.part(job, inner, {**given, **shared})

    def _rows(self, job: Node) -> list[dict[str, Node]]:
        """The runs of a job: GitLab's `parallel: matrix:`, Azure's `strategy: matrix:`."""
        given = self.mapping(job)
        listed = [self.mapping(each) for each in self.items(self.path(given.get("parallel"), "matrix"))]
        axes = [{key: list(self.items(each)) or [each] for key, each in row.items()} for row in listed]
        rows = [dict(zip(row, each, strict=True)) for row in axes for each in islice(product(*row.values()), _ROWS)]
        rows += [self.mapping(each) for each in self.mapping(self.path(given.get("strategy"), "matrix")).values()]
        return [{key: each for key, each in row.items() if each.id == "scalar"} for row in rows[:_ROWS]] or [{}]

    def items(self, node: Node | None) -> Iterator[Node]:
        return iter(node.value if node is not None and node.id == "sequence" and self._afford(len(node.value)) else ())

    def _said(self, given: dict[str, Node], *names: str) -> Iterator[str]:
        for name in names:
            node = given.get(name)
            yield from (self.text(node) or "", *self.listed(node), self.text(self.path(node, "vmImage")) or "")

    def _commands(self, key: str, node: Node, scope: Scope, before: list[str], *, windows: bool) -> None:
        """One script, one for each entry, or the words of one program (`before`: its first); all in one shell."""
        recorder = Recorder(self.trace, Dialect.SHELL, scope, system="windows" if windows else None)
        recorder.stops = True
        parts = list(self.items(node))
        words = [each.value for each in parts if each.id == "scalar"]
        if key in ("command", "entrypoint", "args") and words:
            self._script(key, shlex.join([*before, *words]), node.start_mark.line + 1, recorder)
            return
        for each in parts or [node]:
            if self.trace.full:
                return
            inner = self.mapping(each)
            if each.id == "sequence":
                self._script(key, shlex.join(self.listed(each)), each.start_mark.line + 1, recorder)
            elif inner:
                self.part(each, scope)
            elif self.text(each):
                several = bool(parts) and windows
                self._script("pwsh" if several else key, *self.script(each), recorder, cmd=windows and not several)

    def _script(self, key: str, text: str, first: int, recorder: Recorder, *, cmd: bool = False) -> None:
        text = _FILLED.sub(lambda match: self._value(match, recorder), text)
        if key in ("pwsh", "powershell"):
            recorder.dialect = Dialect.POWERSHELL
        elif cmd and key == "script":
            recorder.dialect = Dialect.BATCH
        read_script(recorder, text + "\n", first)

    @staticmethod
    def _value(match: re.Match[str], recorder: Recorder) -> str:
        """What a name of the pipeline holds; one that nobody set is a variable of the shell's that nobody set."""
        name = (match[1] or match[2] or match[3]).rpartition(".")[2]
        found = recorder.lookup(name)
        return found.text if found is not None else match[0] if match[3] else f"${name}"

    def variables(self, node: Node | None, scope: Scope) -> None:
        """`name: value`, `- NAME=value`, or `- name: …` with `value: …`."""
        recorder = Recorder(self.trace, scope=scope)
        rows = list(self.mapping(node).items())
        for each in self.items(node):
            row = self.mapping(each)
            name, _, _ = (self.text(each) or "").partition("=")
            rows += [(self.text(row["name"]) or "", row["value"])] if {"name", "value"} <= {*row} else [(name, each)]
        for key, each in rows:
            value = self.text(each) or self.text(self.path(each, "value"))
            if key and value is not None:
                value = value.removeprefix(f"{key}=")
                recorder.set(key, value, each.start_mark.line + 1, known="$" not in value, text=f"{key}: {value}")

    def _python(self, node: Node | None, scope: Scope) -> None:
        version = self.text(node) or next(iter(self.listed(node)), "")
        if node is not None and re.match(r"3\.\d", version):
            line = node.start_mark.line + 1
            self.trace.uses("setup-python", line, scope, given={"python-version": (version, line)})

    def _image(self, name: str, node: Node, scope: Scope) -> None:
        def held(match: re.Match[str]) -> str:
            found = scope.get(match[1], self.trace.order)
            return found.text if found else match[2] or match[0]

        name = re.sub(r"\$\{?(\w+)(?::?-([^}]*))?\}?", held, name)
        self.trace.stands_on(name, node.start_mark.line + 1, scope, "$" not in name)

    def _packages(self, given: dict[str, Node], scope: Scope) -> None:
        """What a list installs without a command: packages of the system, then those of pip."""
        recorder = Recorder(self.trace, scope=scope)
        modules = {name.removeprefix("ansible.builtin."): each for name, each in given.items()}
        found = [self.mapping(modules.get(name)).get(key) for name, keys in _SYSTEM.items() for key in keys]
        for node in (*found, *(given.get(name) for name in _SYSTEM_LISTS)):
            words = [Word(text, text, line) for text, line in self._names(node, recorder)]
            recorder.takes(["apt-get", "install", "-y"], words)
        task = self.mapping(modules.get("pip"))
        folder = self.text(task.get("virtualenv"))
        pip = f"{folder}/bin/pip install" if folder else "pip install"
        lists = [("", each) for each in (task.get("name"), given.get("python_packages"))]
        lists += [("-r ", each) for each in (task.get("requirements"), given.get("python_requirements"))]
        for option, node in lists:
            words = [word for text, line in self._names(node, recorder) for word in listed(option + text, line)]
            head = f"{pip} {self.text(task.get('extra_args')) or ''}".split()
            recorder.takes([*head, *self._cog(given, words)], words)

    def _names(self, node: Node | None, recorder: Recorder) -> Iterator[tuple[str, int]]:
        """One name or a list of them, their variables filled in, with the lines."""
        for each in [node, *self.items(node)]:
            if each is not None and self.text(each):
                yield _FILLED.sub(lambda match: self._value(match, recorder), each.value), each.start_mark.line + 1

    def _cog(self, given: dict[str, Node], words: list[Word]) -> list[str]:
        """The index that Cog adds for a torch that is pinned to a number."""
        texts = [word.text for word in words]
        if texts[:1] == ["-r"] and self.trace.beside is not None:
            other = self.trace.beside.text(texts[1], None)
            texts = [word.text for word in listed(other.text)] if other is not None else []
        pin = next(
            (found[1] for text in texts if (found := re.fullmatch(r"torch\s*==\s*(\d{1,3}(?:\.\d{1,3})+)", text))), None
        )
        if pin is None or not given.keys() & {"gpu", "python_version"} or any("whl/" in text for text in texts):
            return []
        on_card = (self.text(given.get("gpu")) or "").lower() == "true"
        line = cog_line(pin, self.text(given.get("cuda"))) if on_card else CPU
        if line is None:
            self.trace.unread(words[0].line, "", f"which CUDA Cog takes for torch {pin} is not known")
        return ["--extra-index-url", index_of(line)] if line else []

    def asks_for_cards(self, service: dict[str, Node]) -> bool:
        """`gpus`, NVIDIA's runtime, reserved devices, or devices by CDI; what it takes over from elsewhere may, too."""
        if service.keys() & {"gpus", "extends", "privileged"} or self.text(service.get("runtime")) == "nvidia":
            return True
        reserved = self.mapping(self.path(service.get("deploy"), "resources", "reservations"))
        return bool(reserved.keys() & {"devices", "generic_resources"}) or any(
            "nvidia" in each for each in self.listed(service.get("devices"))
        )

    def _build(self, node: Node, around: dict[str, Node]) -> None:
        """The Dockerfile beside it, as if it stood at the line of `build`."""
        given = self.mapping(node)
        folder = self.text(node) or self.text(given.get("context")) or "."
        args = given.get("args")
        pairs = {key: self.text(value) or "" for key, value in self.mapping(args).items()}
        pairs |= dict(word.partition("=")[::2] for word in self.listed(args) if "=" in word)
        named = given.get("dockerfile") or given.get("dockerFile") or around.get("dockerFile")
        line, name = node.start_mark.line + 1, self.text(named) or "Dockerfile"
        text = self.text(given.get("dockerfile_inline"))
        if text is None and self.trace.beside is not None:
            other = self.trace.beside.text(f"{folder}/{name}", None) or self.trace.beside.text(name, None)
            text = other.text if other is not None else None
        if text is None:
            self.trace.unread(line, "", f"`{name[:80]}` does not lie beside this file")
            return
        images = len(self.trace.images)
        self.trace.build_arguments, self.trace.at = pairs, line
        self.trace.opened.setdefault(line, name)
        read_dockerfile(self.trace, text)
        self.trace.build_arguments, self.trace.at = {}, None
        for at in range(images, len(self.trace.images)):
            self.trace.images[at] = msgspec.structs.replace(self.trace.images[at], line=line)
