"""The Pythons: the one a build is for, the one that wins on PATH, the one that runs Rekindle.

The target is the environment that is active. With none active it is the first `python` on PATH, and with none there
the one that runs Rekindle.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from rekindle.core import codec
from rekindle.core.errors import BadInput
from rekindle.core.programs import is_absolute
from rekindle.core.version import Version
from rekindle.machine.host import CouldNotRead, Run, each, spell
from rekindle.machine.model import Environments, FoundPython, FoundTorch
from rekindle.model.requirement import canonical_name

MATTERING = frozenset(
    {
        *("pip", "setuptools", "wheel", "build", "packaging", "cmake", "ninja", "numpy", "pyyaml", "typing-extensions"),
        *("torch", "torchvision", "torchaudio", "triton", "triton-windows", "mkl", "mkl-include", "mkl-static"),
        *("mkl-devel", "intel-openmp", "nvidia-cuda-nvcc", "nvidia-cudnn-cu11", "nvidia-cudnn-cu12"),
        *("nvidia-cudnn-cu13", "astunparse", "requests", "jinja2", "sympy", "filelock", "networkx", "six"),
    }
)
_PTH = r"(?i)python\d+\._pth"
_MATTERING_INFO = (
    rf"(?i)(?:{'|'.join(sorted(name.replace('-', '[-_.]') for name in MATTERING))})-\d.*\.(?:dist-info|egg-info)"
)
# `torch-2.6.0.dist-info`; Debian's packages often have `setuptools-78.1.1.egg-info`.
DISTRIBUTION_FOLDER = r"(?i)([A-Za-z0-9][\w.]*)-(\d[\w.+!]*?)(?:-py[\d.]+)?\.(?:dist-info|egg-info)"


def probe(run: Run) -> tuple[FoundPython, ...]:
    wanted = list({_identity(run, path): path for path in reversed(interpreters(run)) if run.exists(path)}.values())[
        ::-1
    ]
    found = each(lambda path: ask(run, path), wanted)
    distinct: dict[str, FoundPython] = {}
    for python in found:
        key = run.paths.normcase(python.prefix or run.real(python.path))
        distinct.setdefault(key, python)
    return tuple(distinct.values())


def interpreters(run: Run) -> list[str]:
    """Paths in the order of what a build would use."""

    def path() -> list[str]:
        return [*on_path(run)[:1], *([] if run.windows else run.which("python3")[:1])]

    def own() -> str | None:
        return run.told("python that runs rekindle", lambda: sys.executable, str) or None

    return in_order(run.env, run.join, path, own, windows=run.windows)


def by_name(run: Run, minor: str) -> FoundPython | None:
    """`python3.12`, beside the ones that the names without a number lead to."""
    hits = run.which(f"python{minor}")
    found = ask(run, hits[0]) if hits else None
    return found if found and found.minor == minor else None


def _identity(run: Run, path: str) -> tuple[str, str]:
    """`python` and `python3` of one folder are one; a virtual environment's is a link but stands for its folder."""
    return run.paths.normcase(run.parent(path)), run.real(path)


def on_path(run: Run) -> list[str]:
    """Every `python` on PATH. Windows puts a stub for its Store there that is no Python."""
    return [hit for hit in run.which("python") if "windowsapps" not in hit.lower()]


def ask(run: Run, path: str) -> FoundPython:
    # By its path, because `-c` would look for modules in the current folder. -E, not -I: what is installed for the user
    # only is part of the environment too.
    script = str(Path(__file__).with_name("ask_python.py"))
    said = run.command(path, "-E", "-X", "utf8", script, label=f"{spell([path])} ask_python.py")
    try:
        return parse(run, path, said.out)
    except CouldNotRead as error:
        lines = said.err.strip().splitlines()
        return FoundPython(path=path, trouble=lines[-1][:200] if lines else str(error))


def installed(run: Run, folders: tuple[str, ...]) -> dict[str, str]:
    """The packages that matter to a build, by the names of their `.dist-info` folders: nothing is imported for this."""
    found: dict[str, str] = {}
    for folder in folders:
        for name in run.names(folder, re.compile(_MATTERING_INFO)):
            match = re.fullmatch(DISTRIBUTION_FOLDER, name)
            project = canonical_name(match[1]) if match else ""
            if match and project in MATTERING:
                found.setdefault(project, match[2])
    return found


class _Account(msgspec.Struct, frozen=True, kw_only=True):
    """What `ask_python.py` says of the Python that runs it."""

    version: Version
    prefix: str
    base_prefix: str
    site_packages: tuple[str, ...]
    conda: bool
    bits: int
    free_threaded: bool = False
    implementation: str | None = None
    executable: str | None = None


def parse(run: Run, path: str, text: str) -> FoundPython:
    try:
        said = codec.from_json(text, _Account)
    except BadInput as error:
        raise CouldNotRead("a Python gave no account of itself") from error
    embedded = run.windows and bool(run.names(said.prefix, re.compile(_PTH)))
    venv = "venv" if said.prefix != said.base_prefix else "system"
    letters = "cp" if said.implementation in ("cpython", None) else "pp"
    own = said.executable
    # A shim (pyenv, asdf) is a shell script that needs more on PATH than a build has: the interpreter itself is taken.
    if own and run.paths.normcase(run.parent(own)) != run.paths.normcase(run.parent(path)):
        path = own
    return codec.like(
        FoundPython,
        said,
        path=path,
        tag=f"{letters}{said.version.major}{said.version.minor}{'t' if said.free_threaded else ''}",
        kind="conda" if said.conda else "embedded" if embedded else venv,
        packages=installed(run, said.site_packages),
    )


def in_order(
    variable: Callable[[str], str | None],
    join: Callable[..., str],
    on_path: Callable[[], Sequence[str]],
    own: Callable[[], str | None],
    *,
    windows: bool,
) -> list[str]:
    """Which Python counts when none is named: the active environment's, then PATH's, then Rekindle's own."""
    name = "python.exe" if windows else "python"
    found: list[str] = []
    # One that depends on where one stands may be anybody's.
    named = (variable(each) or "" for each in ("VIRTUAL_ENV", "CONDA_PREFIX"))
    venv, conda = (each if is_absolute(each, windows=windows) else "" for each in named)
    if venv:
        found.append(join(venv, "Scripts" if windows else "bin", name))
    if conda:
        found.append(join(conda, name) if windows else join(conda, "bin", name))
    found += on_path()
    mine = own()
    return list(dict.fromkeys([*found, mine] if mine else found))


def environments(run: Run) -> Environments:
    found = probe(run)
    # Imported while other programs are waited for: the interpreters had to be started before anything else.
    from rekindle.machine.toolchain import cudnn, toolkits

    target = found[0] if found else None
    torch: FoundTorch | None
    try:
        torch = cudnn.installed_torch(run, target)
    except CouldNotRead:
        torch = None
    folders = target.site_packages if target else ()
    return Environments(
        pythons=found,
        torch=torch,
        cudnns=cudnn.probe(run, folders),
        toolkits=toolkits.in_packages(run, folders),
    )
