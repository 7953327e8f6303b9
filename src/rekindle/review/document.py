"""A file to review: its text, its lines, how they end, and what kind of script it is."""

from __future__ import annotations

import re
import sys
from enum import Enum
from pathlib import Path

import msgspec

from rekindle.core import codec, files
from rekindle.core.console import clean
from rekindle.core.errors import BadInput

LARGEST = 4 << 20
_READS = (
    "review reads .bat, .cmd, .ps1, .sh, Dockerfiles, Apptainer's .def, docker-compose, Makefiles, pipelines and other "
    "YAML with commands, requirements.txt, environment.yml, pyproject.toml, pixi.toml, Pipfile, tox.ini, setup.cfg, "
    "conda recipes, .py, .ipynb, and .md or .txt notes"
)


class Dialect(str, Enum):
    BATCH = "batch"
    POWERSHELL = "powershell"
    SHELL = "shell"
    DOCKERFILE = "dockerfile"
    WORKFLOW = "workflow"
    STEPS = "steps"
    NOTES = "notes"
    REQUIREMENTS = "requirements"
    ENVIRONMENT = "conda environment"
    RECIPE = "conda recipe"
    PROJECT = "project"
    MAKEFILE = "makefile"
    COMPOSE = "compose"
    NOTEBOOK = "notebook"
    PYTHON = "python code"
    INI = "ini"

    @property
    def windows(self) -> bool:
        return self in (Dialect.BATCH, Dialect.POWERSHELL)

    @property
    def unattended(self) -> bool:
        """It runs where nobody answers, and where no card is seen."""
        return self in (Dialect.DOCKERFILE, Dialect.WORKFLOW, Dialect.STEPS, Dialect.COMPOSE)


LANGUAGES = {
    **dict.fromkeys(("bat", "batch", "cmd", "dos"), Dialect.BATCH),
    **dict.fromkeys(("powershell", "ps1", "pwsh", "ps"), Dialect.POWERSHELL),
    **dict.fromkeys(("sh", "bash", "shell", "console", "zsh", "shell-session", "shellscript"), Dialect.SHELL),
}
"""The names that a shell has in notes and in workflows."""

LISTS = (Dialect.REQUIREMENTS, Dialect.ENVIRONMENT, Dialect.RECIPE, Dialect.PROJECT)
"""What only names packages, and runs nothing."""


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """`text` has plain line feeds; `ends` is how the file itself ends its lines."""

    name: str
    dialect: Dialect
    text: str
    lines: tuple[str, ...]
    ends: str = "\n"
    encoding: str = "utf-8"
    folder: Path | None = None
    """Where the file lies; None for a text without a place."""

    def line(self, number: int) -> str:
        return self.lines[number - 1] if 0 < number <= len(self.lines) else ""


def load(path: Path) -> Document:
    if str(path) == "-":
        data, name = sys.stdin.buffer.read(LARGEST + 1), "standard input"
    else:
        data, name = _bytes(path), str(path)
    if len(data) > LARGEST:
        raise BadInput(f"`{name}` is too large to be a build script (over {LARGEST >> 20} MB)", hint=_READS)
    text, encoding = _decoded(data)
    if "\0" in text:
        raise BadInput(files.not_a(name, "a text file"), hint=_READS)
    return read(text, name=name, encoding=encoding, folder=None if str(path) == "-" else path.parent)


def read(text: str, *, name: str = "", encoding: str = "utf-8", folder: Path | None = None) -> Document:
    ends = "\r\n" if "\r\n" in text else "\n"
    plain = text.replace("\r\n", "\n")
    lines = tuple(clean(line) for line in plain.split("\n"))
    if lines and not lines[-1]:
        lines = lines[:-1]
    body = "\n".join(lines) + "\n"
    dialect = _dialect(name, body)
    if dialect is None and not body.strip():
        raise codec.empty(f"`{name or 'this text'}`")
    if dialect is None:
        raise BadInput(f"cannot review `{name or 'this text'}`: not a kind of script that Rekindle reads", hint=_READS)
    return Document(name=name, dialect=dialect, text=body, lines=lines, ends=ends, encoding=encoding, folder=folder)


def _bytes(path: Path) -> bytes:
    if path.is_file() and path.stat().st_size > LARGEST:
        raise BadInput(f"`{path}` is too large to be a build script (over {LARGEST >> 20} MB)", hint=_READS)
    return files.read_bytes(path)


def _decoded(data: bytes) -> tuple[str, str]:
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", "replace"), "utf-16"
    for encoding in ("utf-8-sig", "cp1252"):
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            continue
        return text, encoding if encoding != "utf-8-sig" or data.startswith(b"\xef\xbb\xbf") else "utf-8"
    return data.decode("latin-1"), "latin-1"


_SUFFIXES = {
    **dict.fromkeys((".bat", ".cmd"), Dialect.BATCH),
    **dict.fromkeys((".ps1", ".psm1"), Dialect.POWERSHELL),
    **dict.fromkeys((".sh", ".bash", ".zsh"), Dialect.SHELL),
    **dict.fromkeys((".dockerfile", ".containerfile", ".def"), Dialect.DOCKERFILE),
    **dict.fromkeys((".md", ".markdown"), Dialect.NOTES),
    ".ipynb": Dialect.NOTEBOOK,
    ".py": Dialect.PYTHON,
    **dict.fromkeys((".mk", ".makefile"), Dialect.MAKEFILE),
}
_NAMES = {
    **dict.fromkeys(("makefile", "gnumakefile"), Dialect.MAKEFILE),
    **dict.fromkeys(("pyproject.toml", "pixi.toml", "pipfile"), Dialect.PROJECT),
    **dict.fromkeys(("tox.ini", "setup.cfg"), Dialect.INI),
}
# Under another name, as `gpu.toml`, the tables say it.
_TABLES = (
    ({".toml"}, re.compile(r"(?m)^\[(?:project|tool\.(?:poetry|uv|pixi|pdm|hatch))\b"), Dialect.PROJECT),
    ({".ini", ".cfg"}, re.compile(r"(?m)^\[(?:tox|testenv|options)\b"), Dialect.INI),
)
_KNOWN_OTHERS = frozenset(
    {".json", ".toml", ".js", ".ts", ".c", ".cpp", ".cu", ".cuh", ".h", ".xml", ".html", ".cfg"}
    | {".ini", ".lua", ".rb", ".go", ".rs", ".java", ".cmake", ".nix", ".csv", ".log", ".lock"}
)


_LISTED = re.compile(
    r"--?[a-z][\w-]*(?:[ =].*)?\Z|(?:git\+|https?://|\./|file:)\S+.*\Z"
    r"|[A-Za-z0-9][\w.-]*\s*(?:\[[^\]]*\])?\s*(?:\\\Z|;.*|@.*|\(?\s*(?:[<>=!~]=?).*)?\Z"
)


# A line of `conda list --export`, or of `--explicit`; pip knows neither.
_CONDA_PIN = re.compile(r"(?m)^(?:[A-Za-z][\w.-]*=\d[\w.*]*(?:=[\w.]+)?|@EXPLICIT)[ \t]*$")


def _dialect(name: str, text: str) -> Dialect | None:
    path = Path(name.replace("\\", "/"))
    suffix, base = path.suffix.lower(), path.name.lower()
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix]
    if base.startswith(("dockerfile", "containerfile", "singularity", "apptainer")):
        return Dialect.DOCKERFILE
    if base in _NAMES:
        return _NAMES[base]
    if base.startswith(("makefile.", "gnumakefile.")):
        return Dialect.MAKEFILE
    tables = next((kind for ends, heads, kind in _TABLES if suffix in ends and heads.search(text)), None)
    if tables is not None:
        return tables
    if base.endswith("devcontainer.json") or base.startswith("jenkinsfile"):
        return Dialect.STEPS
    if suffix in (".yml", ".yaml"):
        return yaml_kind(text)
    if suffix in _KNOWN_OTHERS or base == "cmakelists.txt":
        return None
    named = re.match(r"(?:requirements|constraints)(?![a-z])|.*[-_]requirements\.", base)
    by_conda = re.search(r"(?m)^#[ $]*conda create .*--file", text)  # as `conda list --export` says in its head
    pins = _CONDA_PIN.search(text) and not re.search(r"[<>=!~]=[ \d]", text)
    if suffix in (".txt", ".in", ".pip") and (by_conda or pins):
        return Dialect.ENVIRONMENT
    rows = (re.sub(r"(?:^|\s)#.*", "", line).strip()[:300] for line in text.replace("\\\n", " ").split("\n"))
    # Every line that says something is a requirement, an option of pip or an address.
    if suffix in (".txt", ".in", ".pip") and (named or {bool(_LISTED.match(row)) for row in rows if row} == {True}):
        return Dialect.REQUIREMENTS
    return _guessed(text)


_COMMANDS = re.compile(
    r"(?m)^[ \t{-]*[\"']?(?:[\w-]+\.)*"
    r"(?:(?:before_)?(?:script|install)|run|runcmd|commands?|cmd|shell|bash|pwsh|powershell"
    r"|pip|image|python_packages|python_requirements|postCreateCommand|dockerfile)[\"']?:"
)


def yaml_kind(text: str) -> Dialect | None:
    """A workflow of GitHub has `jobs:`, and no key of Azure or CircleCI; others show by keys for commands."""
    others = r"(?m)^(?:version:\s*[\"']?2|pool:|trigger:)|^[ \t]*-[ \t]+(?:job|stage):"
    if re.search(r"(?m)^(?:[\"']?jobs[\"']?:|runs:\s*$)", text) and not re.search(others, text):
        return Dialect.WORKFLOW
    if re.search(r"(?m)^services:", text):
        return Dialect.COMPOSE
    if re.search(r"(?m)^(?:requirements|outputs):", text) and re.search(r"(?m)^(?:package|recipe|build):", text):
        return Dialect.RECIPE
    if re.search(r"(?m)^dependencies:", text):
        return Dialect.ENVIRONMENT
    return Dialect.STEPS if _COMMANDS.search(text) else None


def _guessed(text: str) -> Dialect | None:
    """What has no name that says it: notes with fenced blocks, or a script by its first line or its words."""
    first = text.lstrip().split("\n", 1)[0]
    if first.startswith("#!"):
        return Dialect.SHELL if re.search(r"\b(?:ba|da|z|k)?sh\b", first) else None
    if re.search(r"(?m)^[ \t]*```", text):
        return Dialect.NOTES
    if re.search(r"(?m)^FROM\s+\S+", text) and re.search(r"(?m)^(?:RUN|ENV|CMD|COPY)\s", text):
        return Dialect.DOCKERFILE
    return guessed_shell(text)


def guessed_shell(text: str) -> Dialect | None:
    """The shell that a piece without a name is written for."""
    if re.search(r"(?im)^[ \t]*\$env:\w|^[ \t]*\$\w+\s*=|^[ \t]*(?:Write-Host|Set-Location|param\s*\()", text):
        return Dialect.POWERSHELL
    if re.search(r"(?im)^[ \t]*(?:@?echo off|set \"?\w+=|rem |call |::)|%\w+%|\.bat\b", text):
        return Dialect.BATCH
    if re.search(r"(?i)(?:^|[\s\"'=])[A-Z]:[\\/]", text) and not re.search(
        r"(?m)^[ \t]*(?:export|sudo|source)\s", text
    ):
        return Dialect.BATCH
    if re.search(
        r"(?m)^[ \t]*(?:[$#>]\s|[!%])?(?:export|sudo|source|set -|if \[|git|pip3?|python3?|conda|cmake|nvcc|cd|apt"
        r"|apt-get|docker|mkdir|module|uv|ninja|make|\w+=\S)(?:\s|$)",
        text,
    ):
        return Dialect.SHELL
    return None
