"""The recommended route in the form of a project: a requirements file, uv, conda, pixi, pylock, a Dockerfile.

Each form pins what the route pins and names the same index. What its reader would not take is refused, with the form
that works.
"""

from __future__ import annotations

from enum import Enum

from rekindle.core.command import Command, dockerfile, pip
from rekindle.core.errors import NoRoute, UsageError
from rekindle.stack.route import Route, Verdict
from rekindle.stack.rules import RouteKind


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
    by_conda = form in (Form.CONDA, Form.PIXI)
    route = _packaged(verdict) if form is Form.CONDA else route
    if not (route.requirements or (by_conda and route.route is RouteKind.CONDA_FORGE)):
        why = f"which {form.value} cannot go" if by_conda else f"which has no `{form.value}` form"
        raise UsageError(f"the route is `{route.route.value}`, {why}", hint="`--as pip` prints its commands")
    if form is Form.PYLOCK:
        raise _no_lock(route)
    made = {Form.CONDA: _conda, Form.PIXI: _pixi, Form.REQUIREMENTS: _requirements, Form.UV: _uv}
    return made.get(form, _dockerfile)(verdict)


def taken_by(form: Form, file: str) -> Command | None:
    """What makes the environment of such a file; None where it is to be merged into another."""
    made = {
        Form.CONDA: ("conda", "env", "create", "-f", file),
        Form.PIXI: ("pixi", "install", "--manifest-path", file),
        Form.DOCKERFILE: ("docker", "build", "-t", "torch", "-f", file, "."),
    }
    if form is Form.REQUIREMENTS:
        return pip("install", "-r", file)
    return Command(*made[form]) if form in made else None


def _no_lock(route: Route) -> UsageError:
    """A lock is installed as it stands: what it does not name is not there, and pip and uv ask for each file's hash."""
    message = "a pylock names every file with its address and hash, those of torch's own needs too: not known here"
    file = "requirements.txt"
    made = f"uv pip compile {file} --python-version {route.python} -o pylock.toml"
    return UsageError(message, hint=f"`rekindle plan ... --as requirements -o {file}`, then `{made}` writes it")


def _linked(pin: str) -> bool:
    """The requirement is the address of a wheel, as NVIDIA's for a Jetson are."""
    return "://" in pin


def _name(pin: str) -> str:
    return pin.rpartition("/")[2].partition("-")[0] if _linked(pin) else pin.partition("==")[0]


def _head(verdict: Verdict, route: Route | None = None) -> str:
    """What the file is for, and what its reader has to know: in a file nobody reads the answer beside it."""
    route = route or verdict.recommended
    cards = ", ".join(card.name for card in verdict.situation.cards)
    lines = [f"torch {route.version} for {cards} on {verdict.situation.system}, by rekindle plan"]
    lines += [f"first: {route.change.text}"] if route.change else []
    lines += [each.why for each in route.missing if each.what == "python"]
    lines += [f"driver: {route.driver}"] if route.driver else []
    lines += [f"loses: {each}" for each in route.loses]
    lines += [f"afterwards, from the usual index: pip install --no-deps {each}" for each in route.afterwards]
    lines += [f"run first in the program: {each.code}" for each in route.settings]
    return "\n".join(f"# {' '.join(each.split())}" for each in lines)


def _requirements(verdict: Verdict) -> str:
    route = verdict.recommended
    # Beside the usual index, which a project's other lines need: what is pinned with its line is on PyTorch's alone.
    index = [f"--extra-index-url {route.index_words[1]}"] if route.index_words else []
    numpy = [route.numpy] if route.numpy else []
    return "\n".join([_head(verdict), *index, *numpy, *route.requirements])


def _uv(verdict: Verdict) -> str:
    """Tables for `pyproject.toml`. torch must be a direct dependency: uv applies sources to those only."""
    route = verdict.recommended
    names = [_name(pin) for pin in route.requirements]
    linked = {_name(pin): pin for pin in route.requirements if _linked(pin)}
    pins = [pin for pin in route.requirements if not _linked(pin)]
    lines = [
        _head(verdict),
        "# merge these tables into pyproject.toml",
        "[project]",
        f'requires-python = "=={_python(route)[1]}.*"',
        "dependencies = [",
    ]
    extra = [route.numpy] if route.numpy else []
    lines += [f'  "{pin}",' for pin in (*pins, *linked, *extra)]
    lines += ["]"]
    if route.index_url and not route.on_configured_index:
        line = route.variant or "torch"
        lines += ["", "[tool.uv.sources]", *(f'{name} = {{ index = "pytorch-{line}" }}' for name in names)]
        lines += ["", "[[tool.uv.index]]", f'name = "pytorch-{line}"', f'url = "{route.index_url}"', "explicit = true"]
    if linked:
        lines += ["", "[tool.uv.sources]", *(f'{name} = {{ url = "{link}" }}' for name, link in linked.items())]
        return "\n".join(lines)
    lines += ["", "[tool.uv]", "constraint-dependencies = [", *(f'  "{pin}",' for pin in pins), "]"]
    return "\n".join(lines)


def _conda(verdict: Verdict) -> str:
    """An `environment.yml`: conda-forge's package where it serves the card whole, else pip's wheels inside conda."""
    route = _packaged(verdict)
    lines = [_head(verdict, route), "name: torch", "channels:", "  - conda-forge", "dependencies:"]
    if route.route is RouteKind.CONDA_FORGE:
        return "\n".join([*lines, *(f'  - "{pin}"' for pin in route.conda)])
    index = [f"      - {' '.join(route.index_words)}"] if route.index_words else []
    numpy = [f'  - "{route.numpy}"'] if route.numpy else []
    pip = ["  - pip", *numpy, "  - pip:", *index, *(f"      - {pin}" for pin in route.requirements)]
    return "\n".join([*lines, "  - {}={}".format(*_python(route)), *pip])


def _pixi(verdict: Verdict) -> str:
    route, where = verdict.recommended, verdict.situation
    platform = {"windows": "win-64", "linux": "linux-64" if where.arch == "x86_64" else "linux-aarch64"}[where.system]
    lines = [_head(verdict), "[workspace]", 'name = "torch"', 'channels = ["conda-forge"]']
    # The major version: pixi refuses a machine whose driver is of less, and a driver runs all of its major.
    system = ["[system-requirements]", f'cuda = "{route.cuda.major}"', ""] if route.cuda else []
    lines += [f'platforms = ["{platform}"]', "", *system, "[dependencies]"]
    if route.route is RouteKind.CONDA_FORGE:
        return "\n".join([*lines, *(_pixi_pin(pin) for pin in route.conda)])
    numpy = [_pixi_pin(route.numpy)] if route.numpy else []
    lines += ['{} = "{}.*"'.format(*_python(route)), *numpy, "", "[pypi-dependencies]"]
    index = f', index = "{route.index_url}"' if route.index_url and not route.on_configured_index else ""
    for pin in route.requirements:
        value = f'url = "{pin}"' if _linked(pin) else _version(pin, index)
        lines.append(f"{_name(pin)} = {{ {value} }}")
    return "\n".join(lines)


def _version(pin: str, index: str) -> str:
    version = pin.partition("==")[2]
    return f'version = "=={version}"{index}'


def _python(route: Route) -> tuple[str, str]:
    """conda's package of it, and its version: a free-threaded one has a name of its own."""
    plain = str(route.python).rstrip("t")
    return "python" if plain == route.python else "python-freethreading", plain


def _packaged(verdict: Verdict) -> Route:
    """conda's own package where it loses nothing and has the Python that was asked for, else what is recommended."""
    best, asked = verdict.recommended, verdict.situation.python
    whole = (each for each in verdict.routes if each.route is RouteKind.CONDA_FORGE and not each.loses)
    mine = (each for each in whole if asked in (None, each.python))
    return next((each for each in mine if best.route.ready_made), best)


def _pixi_pin(pin: str) -> str:
    """`cudnn<=8.7`, `numpy<2` and `python=3.12` as pixi writes them."""
    for sign in ("<=", ">=", "<"):
        name, found, version = pin.partition(sign)
        if found:
            return f'{name} = "{sign}{version}"'
    name, _, version = pin.partition("=")
    number, _, build = version.partition("=")
    if build:
        return f'{name} = {{ version = "{number}", build = "{build}" }}'
    return f'{name} = "{number}.*"' if name == "python" else f'{name} = "{number}"'


def _dockerfile(verdict: Verdict) -> str:
    """The wheels bring CUDA themselves, so the base is a plain Python and the host's driver does the rest."""
    route = verdict.recommended
    if verdict.situation.system != "linux":
        raise UsageError("a Dockerfile is for Linux containers", hint="ask again with `--os linux`")
    if route.route is RouteKind.NVIDIA_WHEEL:
        message = "a container on a Jetson begins with NVIDIA's image for its JetPack, which nobody opened here"
        raise UsageError(message, hint="`--as pip` prints the command for a container of yours")
    if str(route.python).endswith("t"):
        message = f"there is no image of Python {route.python}: the official ones have no free-threaded Python"
        raise UsageError(message, hint="`--as pip` prints the command for an image of yours")
    steps: list[tuple[str, ...]] = [(route.numpy,)] if route.numpy else []
    steps.append((*route.requirements, *route.index_words))
    platform = "--platform=linux/arm64 " if verdict.situation.arch == "aarch64" else ""
    return "\n".join(
        [
            _head(verdict),
            *([f"# the host needs driver {route.driver} and NVIDIA's container toolkit"] if route.driver else []),
            "# run it with `docker run --gpus all`; for torch.compile add gcc and libc6-dev: it calls a C compiler",
            f"FROM {platform}python:{route.python}-slim",
            *(dockerfile(pip("install", "--no-cache-dir", *words)) for words in steps),
        ]
    )
