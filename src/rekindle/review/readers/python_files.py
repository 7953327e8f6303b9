"""What Python projects install outside of lists: notebooks, setup.py, noxfile.py, images, tox.ini, setup.cfg."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections import Counter
from collections.abc import Sequence, Set
from itertools import islice, product

import msgspec

from rekindle.review.packages import listed
from rekindle.review.readers.lists import admitted, read_project
from rekindle.review.readers.notes import prompted
from rekindle.review.readers.recorder import Recorder
from rekindle.review.readers.script import read_script
from rekindle.review.trace import LONGEST_VALUE, Scope, Trace, Value, Word

_LISTS = frozenset({"install_requires", "setup_requires", "extras_require", "tests_require", "dependencies", "deps"})
_SHELLS = re.compile(r"\s*%%(?:bash|sh|shell|script bash)\b")
_NO_CODE = re.compile(r"\s*%%(?!capture|time)")
_COMMAND = re.compile(r"\s*(?:!|%(?:cd|pip|conda|mamba|uv|env|shell|system|sx)\s)")
_IN_SHELL = "_in_the_shell_of_a_cell"
_RUNS = frozenset({"system", "run", "call", "check_call", "check_output", "Popen", "popen", "getoutput", "run_always"})
# Images of containers that are described in Python, as Modal's: what begins one, what a step of it installs or runs.
_REGISTRIES = frozenset({"from_registry", "from_dockerhub"})
_STARTS = _REGISTRIES | {"debian_slim", "micromamba"}
_IMAGE_RUNS = frozenset({"run_commands", "dockerfile_commands"})
_INSTALLS = {
    "install": "pip install",
    "pip_install": "pip install",
    "uv_pip_install": "uv pip install --system",
    "pip_install_from_requirements": "pip install -r",
    "conda_install": "conda install -y",
    "micromamba_install": "micromamba install -y",
}
_IMAGE_STEPS = {*_INSTALLS, *_IMAGE_RUNS, "env"}
_OPTIONS = {"index_url": "--index-url", "extra_index_url": "--extra-index-url", "find_links": "-f", "channels": "-c"}
_NOT_DONE = "\0"
_LONGEST_LIST, _CALLS, _PYTHONS, _ENVIRONMENTS = 500, 200, 8, 80
_INLINE = re.compile(r"(?m)^# /// script[ \t]*\n((?:#(?! ///[ \t]*$).*\n)+)# ///[ \t]*$")
_PACKAGES = frozenset({"packages_to_install", "python_packages"})


def read_notebook(trace: Trace, text: str) -> None:
    """The cells with commands: `!pip …`, `%pip …`, and whole ones under `%%bash`, in their order."""
    try:
        sources = [cell["source"] for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
        cells = [each if isinstance(each, list) else each.splitlines(keepends=True) for each in sources]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        trace.unread(1, "", f"not a notebook: {error}")
        return
    at, placed = 0, []
    for cell in cells:
        rows = []
        for row in map(str, cell):
            spelled = (json.dumps(row, ensure_ascii=ascii)[1:-1] for ascii in (True, False))
            at = max(at, *(text.find(each, at) for each in spelled))
            rows.append((text.count("\n", 0, at) + 1, row.rstrip("\n")))
        placed.append(rows)
    _visited(Recorder(trace), [each for rows in placed for each in _cell(rows)])


def _visited(recorder: Recorder, body: list[ast.stmt]) -> None:
    tree = ast.Module(body, [])
    reader = _CodeReader(recorder, tree)
    reader.visit(tree)
    if reader.extension is not None and not any(recorder.trace.ran("nvcc")):
        reader.flags(None, reader.extension.lineno)


def _cell(rows: list[tuple[int, str]]) -> list[ast.stmt]:
    """A cell as code, in which each command is a call; of one that is no Python only the commands."""
    whole = bool(rows) and _SHELLS.match(rows[0][1]) is not None
    if rows and not whole and _NO_CODE.match(rows[0][1]):
        return []  # what is written to a file, or another language
    code, alone = [""] * len(rows), [""] * len(rows)
    pending: list[str] = []
    first = 0
    for at, (_, row) in enumerate(rows):
        if (whole and not at) or not (whole or pending or _COMMAND.match(row)):
            code[at] = "" if whole else re.sub(r"^(\s*)%(?=[%\w])", r"\1#", row)
            continue
        first = first if pending else at
        plain = re.sub(r"^(\s*)%env (\w+)[= ]", r"\1export \2=", row).replace("{sys.executable}", "python")
        plain = re.sub(r"^(\s*)%(?:shell|system|sx)\s", r"\1!", plain)
        pending.append(re.sub(r"(?<![${])\{(\w+)\}", r"$\1", plain if whole else prompted(plain)))
        if not row.endswith("\\"):
            alone[first] = f"{_IN_SHELL}({chr(10).join(pending)!r})"
            own = rows[first][1]
            code[first] = (own[: len(own) - len(own.lstrip())] if not whole else "") + alone[first]
            pending = []
    for text in (code, alone):
        try:
            body = ast.parse("\n".join(text)).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        for node in (each for statement in body for each in ast.walk(statement) if hasattr(each, "lineno")):
            node.lineno = rows[node.lineno - 1][0]
        return body
    return []


def read_code(trace: Trace, text: str) -> None:
    """Lists that `setup()` is given, what a session or an image of a container installs, commands, flags for nvcc."""
    recorder = Recorder(trace)
    if own := _INLINE.search(text):
        # What `uv run` reads: the comments are a project, at the lines where they stand.
        above = "\n" * text.count("\n", 0, own.start())
        read_project(trace, f"{above}[project]\n" + re.sub(r"(?m)^# ?", "", own[1]))
    try:
        _visited(recorder, ast.parse(text).body)
    except UnicodeEncodeError:
        raise  # half a letter, as in every other kind of file
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if re.search(r"(?m)^[ \t]*[!%]\w", text):
            _visited(recorder, _cell([*enumerate(text.split("\n"), start=1)]))  # a notebook that was saved as code
        else:
            trace.unread(getattr(error, "lineno", None) or 1, "", f"not valid Python: {error}")


class _CodeReader(ast.NodeVisitor):
    """Goes through code as it runs, as far as texts and lists of texts are concerned; each image is a place of its own.

    A name with one text is filled in, a list that grows is all that it may hold, and a function is read where it is
    called with what it is given.
    """

    def __init__(self, recorder: Recorder, tree: ast.AST) -> None:
        self.recorder = recorder
        stored = (node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
        self.stored = Counter(stored)
        called = {_called(node) for node in ast.walk(tree)}
        own = (
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef) and (node.args.args or node.args.vararg)
        )
        self.functions = {node.name: node for node in own if node.name in called}
        self.values: dict[str, list[Word]] = {}
        self.images: dict[str, Scope] = {}
        self.inside = self.calls = 0
        self.extension = next(
            (node for node in ast.walk(tree) if isinstance(node, ast.Call) and _called(node) == "CUDAExtension"), None
        )

    def visit(self, node: ast.AST) -> Scope | None:
        """The image that an expression makes, if it makes one."""
        return None if self.recorder.trace.full else super().visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name in self.functions:
            return
        decorators = [each for each in node.decorator_list if isinstance(each, ast.Call)]
        pythons = [key.value for each in decorators for key in each.keywords if key.arg == "python"]
        outer, values = self.recorder, self.values
        # Nobody calls it here: what it does with what it would be given is not done.
        names = [*(each.arg for each in node.args.args), *([node.args.vararg.arg] if node.args.vararg else [])]
        if not node.decorator_list:
            self.values = values | {name: [Word(_NOT_DONE, name, node.lineno)] for name in names}
        # Each Python of a session of nox is a run of its own.
        for word in [word for each in pythons for word in self.texts(each)][:_PYTHONS]:
            self.recorder = _run_of(outer, node.name, word.text, word.line)
            self.generic_visit(node)
        if self.recorder is outer:
            self.generic_visit(node)
        self.recorder, self.values = outer, values

    def visit_Assign(self, node: ast.Assign) -> None:
        self._assigned(node.targets, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._assigned([node.target], node.value or ast.List([]))

    def _assigned(self, targets: Sequence[ast.expr], value: ast.expr) -> None:
        image = self.visit(value)
        for target in targets:
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                for one, held in zip(target.elts, value.elts, strict=False):
                    self._assigned([one], held)
            name = target.id if isinstance(target, ast.Name) else getattr(target, "attr", "")
            if name and image is not None:
                self.images[name] = image
            elif name and (self.stored[name] < 2 or isinstance(value, (ast.List, ast.Tuple))):
                self.values[name] = self.texts(value)
            elif isinstance(target, ast.Subscript) and _constant(target.slice) == "nvcc":
                self.flags(value)
            elif isinstance(target, ast.Subscript) and _is_environment(target.value):
                self._sets(target.slice, value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name) and not _is_text(node.value):
            self._longer(node.target.id, self.texts(node.value))

    def _longer(self, name: str, more: list[Word]) -> None:
        self.values[name] = [*self.values.get(name, ()), *more][:_LONGEST_LIST]

    def visit_For(self, node: ast.For) -> None:
        if isinstance(node.target, ast.Name):
            self.values[node.target.id] = self.texts(node.iter)
        self.generic_visit(node)

    def visit_Dict(self, node: ast.Dict) -> None:
        self.generic_visit(node)
        for key, value in zip(node.keys, node.values, strict=True):
            if key is not None and _constant(key) == "nvcc":
                self.flags(value)

    def _sets(self, key: ast.expr | None, value: ast.expr, recorder: Recorder | None = None) -> None:
        """`os.environ["X"] = "…"`, and `.env({"X": "…"})` of an image."""
        name, words = _constant(key) if key else None, self.texts(value)
        if isinstance(name, str):
            text, known = (words[0].text, words[0].known) if len(words) == 1 else ("", False)
            (recorder or self.recorder).set(name, text, value.lineno, known=known)

    def flags(self, node: ast.AST | None, line: int = 0) -> None:
        """What nvcc is given; torch's own extensions say their name to it, and are compiled for torch's list."""
        own = ["-DTORCH_EXTENSION_NAME"] if self.extension else []
        words = self.texts(node) if node is not None else [Word("", "", line)]
        self.recorder.takes(["nvcc", *own, "-c", "kernel.cu"], words)

    def visit_Call(self, node: ast.Call) -> Scope | None:
        name = _called(node)
        if name == _IN_SHELL and node.args:
            command = str(_constant(node.args[0]))
            # The names of Python are variables there.
            for each in {*re.findall(r"\w+", command)} & {*self.values}:
                if len(held := self.values[each]) == 1:
                    value = Value(held[0].text, held[0].known, held[0].line, False, self.recorder.trace.tick())
                    self.recorder.scope.put(each, value)
            read_script(self.recorder, f"{command}\n", node.lineno)
            return None
        given = {each.arg: each.value for each in node.keywords if each.arg}
        own = [word for each in node.args for word in self.texts(each)]
        receiver = node.func.value if isinstance(node.func, ast.Attribute) else None
        image = self.visit(receiver) if isinstance(receiver, ast.Call) else None
        for each in (*node.args, *given.values()):
            self.visit(each)
        if name == "setdefault" and receiver is not None and _is_environment(receiver) and len(node.args) == 2:
            self._sets(node.args[0], node.args[1])
        if isinstance(receiver, ast.Name) and name in ("append", "extend"):
            self._longer(receiver.id, own)
        elif isinstance(receiver, (ast.Name, ast.Attribute)) and image is None and name in _IMAGE_STEPS:
            base = self.images.get(receiver.id if isinstance(receiver, ast.Name) else receiver.attr)
            image = self.recorder.trace.open(base, "job image") if base is not None else None
        if name in _RUNS and own and " " in own[0].text:
            own = own[:1]  # whatever a function of that name takes besides
        elif name in self.functions and self.inside < 3 and self.calls < _CALLS:
            self._enters(self.functions[name], node)
            return None
        return self._does(name, own, given, node, image)

    def _enters(self, function: ast.FunctionDef, call: ast.Call) -> None:
        names = [each.arg for each in function.args.args]
        given = [*zip(names, call.args, strict=False), *((each.arg, each.value) for each in call.keywords)]
        self.values |= {name: self.texts(value) for name, value in given if name}
        if function.args.vararg is not None:
            rest = [word for each in call.args[len(names) :] for word in self.texts(each)]
            self.values[function.args.vararg.arg] = rest[:_LONGEST_LIST]
        self.inside, self.calls = self.inside + 1, self.calls + 1
        for each in function.body:
            self.visit(each)
        self.inside -= 1

    def _does(
        self, name: str, own: list[Word], given: dict[str, ast.expr], node: ast.Call, image: Scope | None
    ) -> Scope | None:
        trace, line = self.recorder.trace, node.lineno
        if any(_NOT_DONE in word.text for word in own):
            return image
        if name in _STARTS or "base_image" in given:
            image = trace.open(trace.scopes[0], "job image")
            names = self.texts(given["base_image"]) if "base_image" in given else own if name in _REGISTRIES else []
            for word in names[:1]:
                trace.stands_on(word.text, word.line, image, word.known)
            python = self.texts(given.get("python_version") or given.get("add_python") or ast.List([]))
            for word in python[:1]:
                trace.uses("setup-python", line, image, given={"python-version": (word.text, word.line)})
        recorder = Recorder(trace, scope=image or self.recorder.scope)
        for each in node.args if name == "env" and image is not None else ():
            for variable, said in zip(each.keys, each.values, strict=True) if isinstance(each, ast.Dict) else ():
                self._sets(variable, said, recorder)
        options = [word for key, value in given.items() for word in self._option(key, value)]
        for word in self.texts(given["python_requires"]) if "python_requires" in given else ():
            trace.admitted = admitted(word.text, word.line)
        for key, value in given.items():
            if key in (_LISTS if name == "setup" else _PACKAGES):
                for each in value.values if isinstance(value, ast.Dict) else [value]:
                    recorder.takes(["pip", "install"], self.texts(each))
        if name in _INSTALLS and (image is not None or isinstance(node.func, ast.Attribute)):
            recorder.takes(_INSTALLS[name].split(), [*own, *options])
        elif name in ("main", "pipmain") and own and own[0].text == "install":
            recorder.takes(["pip"], own)
        elif name in _RUNS and image is None and not (len(own) == 1 and " " in own[0].text):
            recorder.takes([], own if any(word.known for word in own) else [])
        elif name in _RUNS or (name in _IMAGE_RUNS and image is not None):
            recorder.stops = recorder.stops or image is not None  # as RUN of a Dockerfile
            for word in own:
                read_script(recorder, word.text.removeprefix("RUN ") + "\n", word.line)
        return image

    def _option(self, key: str, value: ast.expr) -> list[Word]:
        """`index_url=…` is `--index-url …`; others are no option of pip's."""
        words = self.texts(value)
        if key == "extra_options":
            return [Word(part, part, word.line) for word in words for part in word.text.split()]
        option = _OPTIONS.get(key)
        return [part for word in words for part in (Word(option, option, word.line), word)] if option else []

    def texts(self, node: ast.AST) -> list[Word]:
        """The texts that stand in it, in order; `sys.executable` is a Python, and what nobody knows is a variable."""
        if isinstance(node, ast.Constant):
            return [Word(node.value, node.value, node.lineno, True)] if isinstance(node.value, str) else []
        if isinstance(node, ast.Name):
            unknown = Word(f"${node.id}", node.id, node.lineno, False, False)
            return self.values.get(node.id) or ([] if node.id in self.values else [unknown])
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.BinOp) and _is_text(node)):
            parts = node.values if isinstance(node, ast.JoinedStr) else [node.left, node.right]
            found = [self.texts(each.value if isinstance(each, ast.FormattedValue) else each) for each in parts]
            words = [each[0] if len(each) == 1 else Word("$_", "$_", 0, False, False) for each in found]
            text = "".join(word.text for word in words)
            if len(text) > LONGEST_VALUE:
                return [Word("$_", "$_", node.lineno, True, False)]
            return [Word(text, text, node.lineno, True, all(word.known for word in words))]
        if isinstance(node, ast.Attribute):
            return [Word("python", "python", node.lineno)] if node.attr == "executable" else []
        if isinstance(node, (ast.List, ast.Tuple)):
            return [word for each in node.elts for word in self.texts(each)][:_LONGEST_LIST]
        if isinstance(node, ast.Starred):
            return self.texts(node.value)
        if isinstance(node, ast.BinOp):
            return [*self.texts(node.left), *self.texts(node.right)][:_LONGEST_LIST]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ("get", "getenv"):
                return self.texts(node.args[-1]) if len(node.args) > 1 else []
            if node.func.attr == "replace" and len(node.args) == 2:
                old, new = map(_constant, node.args)
                held = self.texts(node.func.value)
                if not (isinstance(old, str) and isinstance(new, str)):
                    return []
                return [msgspec.structs.replace(each, text=each.text.replace(old, new)) for each in held]
            if node.func.attr == "split":
                words = self.texts(node.func.value)
                return [Word(part, part, node.lineno) for word in words for part in shlex.split(word.text)]
        return []


def _called(node: ast.AST) -> str:
    """The last part of the name of what is called."""
    function = node.func if isinstance(node, ast.Call) else None
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _is_environment(node: ast.AST) -> bool:
    return "environ" in (getattr(node, "attr", ""), getattr(node, "id", ""))


def _constant(node: ast.AST) -> object:
    return node.value if isinstance(node, ast.Constant) else None


def _is_text(node: ast.AST) -> bool:
    """One text, not a list of them."""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Add) and (_is_text(node.left) or _is_text(node.right))
    return isinstance(node, ast.JoinedStr) or isinstance(_constant(node), str)


def _run_of(recorder: Recorder, name: str, python: str, line: int) -> Recorder:
    """One run of several, with a Python of its own."""
    inner = recorder.inner(f"job {name} row")
    inner.trace.uses("setup-python", line, inner.scope, given={"python-version": (python, line)})
    return inner


def read_ini(trace: Trace, text: str) -> None:
    """tox.ini and setup.cfg: what each section installs, then what it runs, in each environment that tox is told."""
    rows: list[str] = []
    first = -1  # the row that this one goes on
    for row in text.split("\n"):
        rows.append(row.removesuffix("\\") if first < 0 else "")
        rows[first] += "" if first < 0 else row.strip().removesuffix("\\")
        first = (len(rows) - 1 if first < 0 else first) if row.endswith("\\") else -1
    # What stands in the environment of tox has the value that it falls back to.
    text = re.sub(r"\{env:\w+:([^{}]*)\}", r"\1", "\n".join(rows))
    found = re.search(r"(?m)^env_?list[ \t]*=(.*(?:\n[ \t]+\S.*)*)", text)
    names = _expanded(found[1][:LONGEST_VALUE])[:_ENVIRONMENTS] if found is not None else []
    line = text.count("\n", 0, found.start()) + 1 if found is not None else 0
    outer = Recorder(trace)
    for name in names:
        number = re.match(r"py(3)\.?(\d{1,9})(?![\w.])", name)
        of_it = _run_of(outer, "tox", ".".join(number.groups()), line) if number else outer.inner("job tox row")
        _sections(of_it, text, name, {*names} - {name})
    if not names:
        _sections(outer, text)


def _expanded(listed_in: str) -> list[str]:
    """`py{39,310}-cuda, lint`: the names that braces stand for."""
    parts = re.findall(r"(?:[^\s,{}]|\{[^{}]*\})+", re.sub(r"(?m)#.*", "", listed_in))
    ways = ([each.split(",") for each in re.split(r"[{}]", part)] for part in parts)
    return ["".join(map(str.strip, way)) for each in ways for way in islice(product(*each), _ENVIRONMENTS)]


def _holds(condition: str, name: str) -> bool:
    """`py311-cuda,!lint`: one of them has to hold, of which each part is in the name, or is not."""
    factors = {*name.split("-")}
    ways = (each.split("-") for each in _expanded(condition))
    return any(all((part.lstrip("!") in factors) is (part[:1] != "!") for part in way) for way in ways)


def _sections(recorder: Recorder, text: str, name: str = "", others: Set[str] = frozenset()) -> None:
    """What the sections do for the environment of this name; without one, whatever stands there."""
    extras = skipped = False
    key, pending, command = "", list[Word](), ["pip", "install"]
    of_set_env = re.finditer(r"(?m)^(?:set_?env[ \t]*=)?[ \t]*((?:PIP|UV)_\w+)[ \t]*=[ \t]*(\S+)", text)
    for told in of_set_env:  # wherever it stands
        recorder.set(told[1], told[2], text.count("\n", 0, told.start(1)) + 1, how="environment")
    for number, row in enumerate([*text.split("\n"), "[end]"], start=1):
        if recorder.trace.full:
            return
        found = re.match(r"\[(?:testenv:)?([^\]]*)|([\w.-]+)[ \t]*[=:](.*)", row)
        if found:
            recorder.takes(command, pending)
            key, pending = found[2] or "", []
            extras = "extras_require" in row if row[:1] == "[" else extras
            skipped = row.startswith("[testenv:") and found[1] in others if row[:1] == "[" else skipped
        value = (found[3] or "" if found else row).partition(" #")[0].strip()
        chosen = re.match(r"([\w{},!.-]+):[ \t]+", value) if key == "deps" or key.startswith("commands") else None
        if skipped or (chosen and name and not _holds(chosen[1], name)):
            continue
        value = value[chosen.end() :] if chosen else value  # `py311: torch==2.5.1`
        if value and key == "install_command":
            command = [word for word in value.split() if "{" not in word]
        elif value and key == "python_requires":
            recorder.trace.admitted = admitted(value, number)
        elif value and (key in _LISTS or extras) and row[:1] != "[":
            pending += listed(value, number)
        elif value and key.startswith("commands"):
            read_script(recorder, re.sub(r"\{[^{}]*\}", "", value) + "\n", number)
