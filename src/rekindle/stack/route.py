"""A route: one way to a PyTorch that runs on these cards, with all that it takes; and what `rekindle plan` says."""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec

from rekindle.compat.torch_python import spread
from rekindle.core.codec import JsonAnswer
from rekindle.core.command import Command, Word, pip
from rekindle.core.version import Version
from rekindle.knowledge.builds import limits
from rekindle.knowledge.gpu import capabilities
from rekindle.knowledge.tables import Evidence
from rekindle.knowledge.torch import releases, wheel_platforms
from rekindle.model.card import Capability
from rekindle.model.torch_pin import TorchPin
from rekindle.stack.estimates import RouteEstimate
from rekindle.stack.rules import Rejection, RouteKind
from rekindle.stack.situation import Situation, Wish


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """Something the route needs. `have` is what is there instead; None when that is not known."""

    what: str
    need: str
    have: str | None = None
    why: str = ""
    commands: tuple[Command, ...] = ()


class NextStep(msgspec.Struct, frozen=True, kw_only=True):
    """What an owner should know, or do, after tonight's command."""

    text: str
    commands: tuple[Command, ...] = ()


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """The smallest change that would open a route, and the route it would open."""

    what: str
    text: str
    route: RouteKind
    torch: str | None = None
    cuda: Version | None = None
    commands: tuple[Command, ...] = ()
    """What to run instead, where another release is all that it takes."""


class RuntimeSetting(msgspec.Struct, frozen=True, kw_only=True):
    """A line of Python that must run before a program uses torch, and why."""

    code: str
    why: str


class Stack(msgspec.Struct, frozen=True, kw_only=True):
    """One PyTorch with everything around it: what a route leads to, and what a plan pins.

    `loses` is what it lacks and another route has.
    """

    route: RouteKind
    torch: str | None = None
    variant: str | None = None
    cuda: Version | None = None
    cudnn: Version | None = None
    python: str | None = None
    driver: str | None = None
    """The driver it needs, in one plain line."""
    toolset: str | None = None
    toolsets: str | None = None
    """The compilers that would do as well, where nobody asked for one: `14.10 to 14.39`."""
    arch_list: str | None = None
    index_url: str | None = None
    torchvision: str | None = None
    torchaudio: str | None = None
    numpy: str | None = None
    commands: tuple[Command, ...] = ()
    loses: tuple[str, ...] = ()
    conda: tuple[str, ...] = ()
    """What conda is asked for, pin by pin, where it installs the stack."""

    @property
    def version(self) -> str:
        """As pip spells it: `2.3.1+cu118`."""
        return str(TorchPin(str(self.torch), self.variant))

    def facts(self) -> dict[str, Any]:
        """What every stack says, by its fields: from a route into a plan, and back."""
        return {name: getattr(self, name) for name in Stack.__struct_fields__}


_SCRIPTS = {
    RouteKind.OFFICIAL_WHEEL: "PyTorch's build script of that release",
    RouteKind.CONDA_FORGE: "conda-forge's build script of that package",
}


class Shorter(msgspec.Struct, frozen=True, kw_only=True):
    """The same build by compiling less: an official wheel keeps its CPU half."""

    base: str
    estimate: RouteEstimate
    loses: tuple[str, ...]
    unverified: str
    commands: tuple[Command, ...]


class Route(Stack, frozen=True, kw_only=True):
    """A way to a stack. `lacks` is what no PyTorch can do on the card.

    `evidence` is the weakest among the rows it stands on; `unverified` what nobody could look up.
    """

    driver_detail: str | None = None
    """`driver` with the releases behind it."""
    requirements: tuple[str, ...] = ()
    """What pip is asked for, pin by pin."""
    afterwards: tuple[str, ...] = ()
    """What goes in by itself, without its dependencies, from the usual index."""
    evidence: Evidence = Evidence.NOTES
    summary: str = ""
    builder: str | None = None
    strangers: tuple[str, ...] = ()
    """Extensions beside it that others than their makers built: `flash-attn (built by NAME)`."""
    location: str | None = None
    why: tuple[str, ...] = ()
    settings: tuple[RuntimeSetting, ...] = ()
    """What has to be set while it runs, which `install` puts in place."""
    lacks: tuple[str, ...] = ()
    unverified: tuple[str, ...] = ()
    missing: tuple[Missing, ...] = ()
    estimate: RouteEstimate | None = None
    hashes: dict[str, str] = {}
    """SHA-256 by file name, where a plan or a shelf pins them."""
    targets: tuple[str, ...] = ()
    on_configured_index: bool = False
    driver_jit: bool = True
    """False: the driver runs this CUDA by minor-version compatibility, which leaves out the compiling of PTX."""
    consent: bool = True
    """False: it needs a person's word before it is recommended."""
    change: Change | None = None
    shorter: Shorter | None = None

    @property
    def known_from(self) -> str:
        """How it is known, in words: the line under what will be installed."""
        if not self.torch:
            return ""
        words = {
            Evidence.BINARY: "read off the real file",
            Evidence.FIELD: "reported from real machines",
            Evidence.SCRIPT: _SCRIPTS.get(self.route, "build scripts"),
            Evidence.NOTES: "manuals, notes or reports of others",
        }
        return words[self.evidence]

    @property
    def index_words(self) -> tuple[str, ...]:
        """How pip is told of PyTorch's index; empty where it is the configured one."""
        return () if self.on_configured_index else index_words(self.index_url, self.python)

    @property
    def driver_first(self) -> Missing | None:
        """The driver that has to be installed before anything of it works."""
        return next((each for each in self.missing if each.what == "driver" and self.change), None)


def index_words(index_url: str | None, python: str | None) -> tuple[str, ...]:
    """PyTorch's index alone; before Python 3.7 beside the usual one, because it keeps no dependencies for those."""
    if index_url is None:
        return ()
    old = python is not None and Version.parse(python.rstrip("t")) < limits.since("index-keeps-dependencies")
    return ("--extra-index-url" if old else "--index-url", index_url)


FOLDER = "torch-env"
"""Not `.venv`: a folder of that name already exists in most projects, and nothing is made over it."""


class PythonChoice(msgspec.Struct, frozen=True, kw_only=True):
    python: str | None
    changed: bool
    why: str
    folder: str = FOLDER
    """Where another Python goes."""


def choose_python(situation: Situation, pythons: tuple[str, ...], what: str) -> PythonChoice:
    """The Python that is there if `PyTorch 2.8.0` has it, else the one most packages have wheels for, and why."""
    have = situation.python
    if have in pythons:
        why = f"Python {have} is free-threaded: its wheels are files of their own" if have.endswith("t") else ""
        return PythonChoice(python=have, changed=False, why=why)
    best = limits.preferred_python(pythons)
    own = wheel_platforms.own_python(situation.system_name) if situation.system_name and have is None else None
    if own in pythons:
        return PythonChoice(python=own, changed=False, why=f"Python {own}: {situation.system_name} comes with it")
    if own is not None:
        why = f"Python {best}: {situation.system_name} comes with {own}, and {what} is for {spread(pythons)}"
        return PythonChoice(python=best, changed=True, why=why)
    if have is None and best is not None and Version(best.rstrip("t")) < RUNS_REKINDLE:
        # Nobody who asks has it at hand: Rekindle itself needs a newer one.
        return PythonChoice(python=best, changed=True, why=f"Python {best}: {what} is for {spread(pythons)}")
    if have is None:
        return PythonChoice(python=best, changed=False, why=f"Python {best}: {limits.python_reason()}")
    if have.endswith("t"):
        plain = have.removesuffix("t")
        best = plain if plain in pythons else best
        reason = f"a free-threaded Python takes wheels of its own, and {what} has none for it"
        why = f"Python {best} instead of {have}: {reason}"
        return PythonChoice(python=best, changed=True, why=why)
    why = f"Python {best} instead of {have}: {what} is for Python {spread(pythons)}"
    return PythonChoice(python=best, changed=True, why=why)


RUNS_REKINDLE = Version("3.10")


def environment_steps(situation: Situation, choice: PythonChoice) -> tuple[Command, ...]:
    """A fresh environment with another Python, where the one that is there will not do; else nothing."""
    if not choice.changed or choice.python is None:
        return ()
    if _by_conda(choice):
        made = ("conda", "create", "-y", "-n", choice.folder, f"python={choice.python}")
    else:
        made = ("uv", "venv", "--seed", "--python", choice.python, choice.folder)
    return (Command(*made, system=situation.system),)


def environment_note(situation: Situation, choice: PythonChoice) -> tuple[str, ...]:
    """What the first step needs, and how to go without it."""
    if not choice.changed or choice.python is None or _by_conda(choice):
        return ()
    own = f"py -{choice.python}" if situation.system == "windows" else f"python{choice.python}"
    there = wheel_platforms.own_python(situation.system_name) if situation.system_name else None
    # uv's package is for Python 3.8 and newer.
    old = there is not None and Version(there) < limits.since("uv-brings-python")
    brings = "curl -LsSf https://astral.sh/uv/install.sh | sh" if old else "python -m pip install uv"
    note = f"`uv venv` needs uv (`{brings}`) and brings Python {choice.python}; "
    return (f"{note}if you have that Python, `{own} -m venv {choice.folder}` does the same",)


def environment_pip(situation: Situation, choice: PythonChoice, *words: Word) -> Command:
    """pip of the environment that was made, which need not be activated, or of the one that is there."""
    if choice.changed and choice.python is not None and _by_conda(choice):
        return Command("conda", "run", "-n", choice.folder, "python", "-m", "pip", *words, system=situation.system)
    folder = environment_folder(situation, choice)
    python = folder + (r"Scripts\python" if situation.system == "windows" else "bin/python") if folder else None
    return pip(*words, python=python, system=situation.system)


def environment_folder(situation: Situation, choice: PythonChoice) -> str:
    """The folder that was made, with the sign behind it after which a path goes on; empty when none was."""
    made = choice.changed and choice.python is not None and not _by_conda(choice)
    return choice.folder + ("\\" if situation.system == "windows" else "/") if made else ""


def _by_conda(choice: PythonChoice) -> bool:
    """uv brings no Python before 3.8."""
    return choice.python is not None and Version.parse(choice.python) < limits.since("uv-brings-python")


def _activation(situation: Situation, choice: PythonChoice) -> Command:
    if _by_conda(choice):
        return Command("conda", "activate", choice.folder, system=situation.system)
    if situation.system == "windows":
        return Command(rf"{choice.folder}\Scripts\activate", system="windows")
    return Command(".", f"{choice.folder}/bin/activate", system="linux")


def numpy_pin(torch: str, system: str) -> str | None:
    """`numpy<2` for a wheel that was compiled against NumPy 1 and cannot take the newer one."""
    if Version.parse(torch) < Version.parse(releases.torch_releases()[0].minor):
        return "numpy<2"
    since = releases.torch_release(torch).numpy2_from(system)
    return None if since is not None and Version.parse(torch) >= since else "numpy<2"


def lacks(situation: Situation) -> tuple[str, ...]:
    """What will not work on these cards, whatever PyTorch is installed."""
    found: dict[str, None] = {}
    for capability in situation.capabilities:
        facts = capabilities.facts(capability)
        found |= dict.fromkeys(facts.lacks if facts else ())
    return tuple(found)


def python_missing(situation: Situation, choice: PythonChoice, *, activate: bool = False) -> tuple[Missing, ...]:
    if not choice.changed or choice.python is None:
        return ()
    return (
        Missing(
            what="python",
            need=choice.python,
            have=situation.python,
            why=choice.why,
            commands=(*environment_steps(situation, choice), *([_activation(situation, choice)] if activate else ())),
        ),
    )


class Answer(str, Enum):
    """To `--why-not`: it cannot be, it can and something else is better, or it is what is recommended."""

    IMPOSSIBLE = "impossible"
    POSSIBLE = "possible"
    RECOMMENDED = "recommended"


class WhyNot(msgspec.Struct, frozen=True, kw_only=True):
    """`chain` is every rule behind the answer, the decisive one first."""

    question: str
    answer: Answer
    sentence: str
    chain: tuple[Rejection, ...]
    instead: str


class AnswerFor(msgspec.Struct, frozen=True, kw_only=True):
    """What the answer would be if the card had this capability."""

    capability: Capability
    route: RouteKind
    torch: str | None
    cuda: Version | None
    summary: str


class OtherWay(msgspec.Struct, frozen=True, kw_only=True):
    """Another way, and in what it is the better one: `loses nothing, newest`."""

    wins: str
    route: Route


class Verdict(msgspec.Struct, JsonAnswer, frozen=True, kw_only=True):
    """The answer of `rekindle plan`. `recommended` has route `none` when nothing works."""

    schema: str = "rekindle.plan/1"
    situation: Situation
    wish: Wish
    recommended: Route
    alternatives: tuple[OtherWay, ...] = ()
    """At most two others, each better than the recommended route in something."""
    routes: tuple[Route, ...]
    rejections: tuple[Rejection, ...]
    missing: tuple[Missing, ...]
    candidates: tuple[AnswerFor, ...] = ()
    """For a name that stands for several chips: the answer for each."""
    notes: tuple[str, ...] = ()
    decisive: str | None = None
    """Why not the newest release: the one reason."""
    outlook: tuple[NextStep, ...] = ()
    """For a card that the newest official wheels have left behind: what comes after tonight's command."""
    why_not: WhyNot | None = None
