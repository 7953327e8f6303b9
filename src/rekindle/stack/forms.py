"""The recommended route in the form of a project: a requirements file, uv, conda, pixi, pylock, a Dockerfile.

Each form pins what the route pins and names the same index; hashes are in the forms that have a place for them, for the
wheels whose bytes are known.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from rekindle.core.command import dockerfile, pip
from rekindle.core.errors import NoRoute, UsageError
from rekindle.stack import plan as lock
from rekindle.stack.rules import RouteKind
from rekindle.stack.verdict import Verdict


class Form(str, Enum):
    PIP = "pip"
    REQUIREMENTS = "requirements"
    UV = "uv"
    CONDA = "conda"
    PIXI = "pixi"
    PYLOCK = "pylock"
    DOCKERFILE = "dockerfile"


def render(verdict: Verdict, form: Form) -> str:
    """The text of a file, or of the commands for `pip`."""
    route = verdict.recommended
    if route.route is RouteKind.NONE:
        raise NoRoute(route.summary, hint=route.change.text if route.change else None)
    if form is Form.PIP:
        return "\n".join(route.commands)
    if form in (Form.CONDA, Form.PIXI):
        return {Form.CONDA: _conda, Form.PIXI: _pixi}[form](verdict)
    if not route.requirements:
        message = f"the route is `{route.route.value}`, which has no `{form.value}` form"
        raise UsageError(message, hint="`--as pip` prints its commands")
    return {
        Form.REQUIREMENTS: _requirements,
        Form.UV: _uv,
        Form.PYLOCK: _pylock,
        Form.DOCKERFILE: _dockerfile,
    }[form](verdict)


def _head(verdict: Verdict) -> str:
    cards = ", ".join(card.name for card in verdict.situation.cards)
    return f"# torch {verdict.recommended.version} for {cards} on {verdict.situation.system}, by rekindle plan"


def _requirements(verdict: Verdict) -> str:
    route = verdict.recommended
    index = [f"--index-url {route.index_url}"] if route.index_url and not route.on_configured_index else []
    # One index holds PyTorch's line and nothing of the rest, so what else is needed goes into a file of its own.
    numpy = [f"# install first, from the usual index: {route.numpy}"] if route.numpy else []
    return "\n".join([_head(verdict), *numpy, *index, *route.requirements])


def _uv(verdict: Verdict) -> str:
    """Tables for `pyproject.toml`. torch must be a direct dependency: uv applies sources to those only."""
    route = verdict.recommended
    names = [pin.partition("==")[0] for pin in route.requirements]
    lines = [
        _head(verdict),
        "# merge these tables into pyproject.toml",
        "[project]",
        f'requires-python = "=={route.python}.*"',
        "dependencies = [",
    ]
    extra = [route.numpy] if route.numpy else []
    lines += [f'  "{pin}",' for pin in (*route.requirements, *extra)]
    lines += ["]"]
    if route.index_url and not route.on_configured_index:
        line = route.variant or "torch"
        lines += ["", "[tool.uv.sources]", *(f'{name} = {{ index = "pytorch-{line}" }}' for name in names)]
        lines += ["", "[[tool.uv.index]]", f'name = "pytorch-{line}"', f'url = "{route.index_url}"', "explicit = true"]
    lines += ["", "[tool.uv]", "constraint-dependencies = [", *(f'  "{pin}",' for pin in route.requirements), "]"]
    return "\n".join(lines)


def _conda(verdict: Verdict) -> str:
    """An `environment.yml`: conda-forge's package, or pip's wheels inside a conda environment."""
    route = verdict.recommended
    lines = [_head(verdict), "name: torch", "channels:", "  - conda-forge", "dependencies:"]
    if route.route is RouteKind.CONDA_FORGE:
        return "\n".join([*lines, *(f'  - "{pin}"' for pin in route.conda)])
    if not route.requirements:
        message = f"the route is `{route.route.value}`, which conda cannot go"
        raise UsageError(message, hint="`--as pip` prints its commands")
    index = [f"      - --index-url {route.index_url}"] if route.index_url and not route.on_configured_index else []
    numpy = [f'  - "{route.numpy}"'] if route.numpy else []
    pip = ["  - pip", *numpy, "  - pip:", *index, *(f"      - {pin}" for pin in route.requirements)]
    return "\n".join([*lines, f"  - python={route.python}", *pip])


def _pixi(verdict: Verdict) -> str:
    route, where = verdict.recommended, verdict.situation
    platform = {"windows": "win-64", "linux": "linux-64" if where.arch == "x86_64" else "linux-aarch64"}[where.system]
    lines = [_head(verdict), "[workspace]", 'name = "torch"', 'channels = ["conda-forge"]']
    lines += [
        f'platforms = ["{platform}"]',
        "",
        "[system-requirements]",
        f'cuda = "{route.cuda}"',
        "",
        "[dependencies]",
    ]
    if route.route is RouteKind.CONDA_FORGE:
        return "\n".join([*lines, *(_pixi_pin(pin) for pin in route.conda)])
    if not route.requirements:
        message = f"the route is `{route.route.value}`, which pixi cannot go"
        raise UsageError(message, hint="`--as pip` prints its commands")
    lines += [f'python = "{route.python}.*"', "", "[pypi-dependencies]"]
    index = f', index = "{route.index_url}"' if route.index_url and not route.on_configured_index else ""
    pairs = [pin.split("==") for pin in route.requirements]
    return "\n".join([*lines, *(f'{name} = {{ version = "=={version}"{index} }}' for name, version in pairs)])


def _pixi_pin(pin: str) -> str:
    """`cudnn<=8.7` and `python=3.12` as pixi writes them."""
    for sign in ("<=", ">="):
        name, found, version = pin.partition(sign)
        if found:
            return f'{name} = "{sign}{version}"'
    name, _, version = pin.partition("=")
    number, _, build = version.partition("=")
    if build:
        return f'{name} = {{ version = "{number}", build = "{build}" }}'
    return f'{name} = "{number}.*"' if name == "python" else f'{name} = "{number}"'


def _pylock(verdict: Verdict) -> str:
    """PEP 751. A package whose file nobody has read stands with its index and without a hash, and a comment says so."""
    route = verdict.recommended
    known = {wheel.name: wheel.sha256 for wheel in lock.plan_of(verdict).wheels}
    lines = [
        _head(verdict),
        'lock-version = "1.0"',
        'created-by = "rekindle"',
        f'requires-python = "=={route.python}.*"',
    ]
    for pin in route.requirements:
        name, _, version = pin.partition("==")
        lines += ["", "[[packages]]", f'name = "{name}"', f'version = "{version}"']
        if route.index_url and not route.on_configured_index:
            lines.append(f'index = "{route.index_url}"')
        lines += _files(name, known)
    return "\n".join(lines)


def _files(name: str, known: Mapping[str, str]) -> list[str]:
    mine = {file: digest for file, digest in known.items() if file.lower().startswith(f"{name}-")}
    if not mine:
        return ["# UNVERIFIED: its hash is not known here; `uv pip compile --generate-hashes` adds it"]
    return [
        line
        for file, digest in mine.items()
        for line in ("[[packages.wheels]]", f'name = "{file}"', f'hashes = {{ sha256 = "{digest}" }}')
    ]


def _dockerfile(verdict: Verdict) -> str:
    """The wheels bring CUDA themselves, so the base is a plain Python and the host's driver does the rest."""
    route = verdict.recommended
    if verdict.situation.system != "linux":
        raise UsageError("a Dockerfile is for Linux containers", hint="ask again with `--os linux`")
    index = ("--index-url", route.index_url) if route.index_url and not route.on_configured_index else ()
    steps = [(route.numpy,)] if route.numpy else []
    steps.append((*route.requirements, *index))
    platform = "--platform=linux/arm64 " if verdict.situation.arch == "aarch64" else ""
    return "\n".join(
        [
            _head(verdict),
            f"# the host needs driver {route.driver}; run it with `docker run --gpus all`",
            f"FROM {platform}python:{route.python}-slim",
            *(dockerfile(pip("install", "--no-cache-dir", *words)) for words in steps),
        ]
    )
