"""What Python projects install outside of lists: notebooks, setup.py, noxfile.py and other code, tox.ini, setup.cfg."""

from __future__ import annotations

import ast
import json
import re
import shlex

from rekindle.review.packages import listed
from rekindle.review.readers.notes import prompted
from rekindle.review.readers.recorder import Recorder
from rekindle.review.readers.script import read_script
from rekindle.review.trace import Trace, Word

_LISTS = frozenset({"install_requires", "setup_requires", "extras_require", "tests_require", "dependencies", "deps"})
_SHELLS = frozenset({"%%bash", "%%sh", "%%shell", "%%script bash"})
_RUNS = frozenset({"system", "run", "call", "check_call", "check_output", "Popen", "popen", "getoutput", "run_always"})


def read_notebook(trace: Trace, text: str) -> None:
    """The cells with commands: `!pip …`, `%pip …`, and whole ones under `%%bash`, in their order."""
    try:
        sources = [cell["source"] for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
        cells = [each if isinstance(each, list) else each.splitlines(keepends=True) for each in sources]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        trace.unread(1, "", f"not a notebook: {error}")
        return
    at, recorder = 0, Recorder(trace)
    for cell in cells:
        rows = []
        for row in map(str, cell):
            spelled = (json.dumps(row, ensure_ascii=ascii)[1:-1] for ascii in (True, False))
            at = max(at, *(text.find(each, at) for each in spelled))
            rows.append((text.count("\n", 0, at) + 1, row.rstrip("\n")))
        _cell(recorder, rows)


def _cell(recorder: Recorder, rows: list[tuple[int, str]]) -> None:
    whole = bool(rows) and rows[0][1].strip() in _SHELLS
    pending: list[str] = []
    first = 0
    for line, row in rows[whole:]:
        if recorder.trace.full:
            return
        if not (whole or pending or re.match(r"\s*(?:!|%(?:cd|pip|conda|mamba|uv|env)\s)", row)):
            continue
        first = first if pending else line
        plain = re.sub(r"^(\s*)%env (\w+)[= ]", r"\1export \2=", row).replace("{sys.executable}", "python")
        pending.append(re.sub(r"(?<![${])\{(\w+)\}", r"$\1", plain if whole else prompted(plain)))
        if not row.endswith("\\"):
            read_script(recorder, "\n".join(pending) + "\n", first)
            pending = []


def read_code(trace: Trace, text: str) -> None:
    """Lists that `setup()` is given, what `session.install` takes, commands that are run, and flags for nvcc."""
    recorder = Recorder(trace)
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if re.search(r"(?m)^[ \t]*[!%]\w", text):
            _cell(recorder, list(enumerate(text.split("\n"), start=1)))  # a notebook that was saved as code
        else:
            trace.unread(getattr(error, "lineno", None) or 1, "", f"not valid Python: {error}")
        return
    for node in ast.walk(tree):
        if trace.full:
            return
        if isinstance(node, ast.Call):
            _call(node, recorder)
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "nvcc" and (flags := _texts(value)):
                    recorder.takes(["nvcc", "-c", "kernel.cu"], flags)


def _call(node: ast.Call, recorder: Recorder) -> None:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    for keyword in node.keywords:
        if keyword.arg in _LISTS and name == "setup":
            values = keyword.value.values if isinstance(keyword.value, ast.Dict) else [keyword.value]
            for value in values:
                recorder.takes(["pip", "install"], _texts(value))
    own = [word for each in node.args for word in _texts(each)]
    if name in ("install", "conda_install") and isinstance(node.func, ast.Attribute):
        recorder.takes(["pip", "install"], own)
    elif name in _RUNS and len(own) == 1 and " " in own[0].text and isinstance(node.args[0], ast.Constant):
        read_script(recorder, own[0].text + "\n", own[0].line)
    elif name in _RUNS:
        recorder.takes([], own)


def _texts(node: ast.AST) -> list[Word]:
    """The texts that stand in it, in order; `sys.executable` is a Python, and what is filled in is not known."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [Word(node.value, node.value, node.lineno, True)]
    if isinstance(node, ast.JoinedStr):
        parts = [str(part.value) if isinstance(part, ast.Constant) else "$_" for part in node.values]
        return [Word("".join(parts), "".join(parts), node.lineno, True, all(part != "$_" for part in parts))]
    if isinstance(node, ast.Attribute) and node.attr == "executable":
        return [Word("python", "python", node.lineno)]
    if isinstance(node, (ast.List, ast.Tuple)):
        return [word for each in node.elts for word in _texts(each)]
    if isinstance(node, ast.BinOp):
        return [*_texts(node.left), *_texts(node.right)]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "split":
        return [Word(part, part, node.lineno) for word in _texts(node.func.value) for part in shlex.split(word.text)]
    return []


def read_ini(trace: Trace, text: str) -> None:
    """tox.ini and setup.cfg: what each section installs, then what it runs."""
    rows = text.split("\n")
    recorder = Recorder(trace)
    key, pending = "", list[Word]()
    for number, row in enumerate([*rows, "[end]"], start=1):
        if trace.full:
            return
        found = re.match(r"(\[)|([\w.-]+)[ \t]*[=:](.*)", row)
        if found:
            recorder.takes(["pip", "install"], pending)
            key, pending = found[2] or "", []
        value = (found[3] or "" if found else row).partition(" #")[0].strip()
        value = re.sub(r"^[\w{},!.-]+:[ \t]+", "", value) if key == "deps" else value  # `py311: torch==2.5.1`
        if value and key in _LISTS:
            pending += listed(value, number)
        elif value and re.match(r"commands", key):
            read_script(recorder, re.sub(r"\{[\w:]+\}", "", value) + "\n", number)
