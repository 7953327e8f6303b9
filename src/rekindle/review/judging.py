"""Does the torch of an environment serve the card? Asked of the planner, which decides it for `plan` as well."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from rekindle.compat import driver_cuda
from rekindle.compat.container import serves as has_code
from rekindle.compat.judgement import Clash, Fits, Judgement, Unknown
from rekindle.compat.old_wheels import share
from rekindle.compat.toolkit_card import able_toolkits, compiles
from rekindle.compat.torch_cuda import any_code, early_code, nightly_code
from rekindle.core.errors import UnknownName
from rekindle.core.version import Version
from rekindle.knowledge.builds import extension_builds, extension_files, programs, script_rules
from rekindle.knowledge.cuda.toolkits import toolkits
from rekindle.knowledge.gpu.capability import Coverage
from rekindle.knowledge.gpu.jetson import jetpacks, release_of
from rekindle.knowledge.tables import cached
from rekindle.knowledge.torch import projects
from rekindle.knowledge.torch.torch_wheels import old_wheels
from rekindle.model.card import Capability, Target
from rekindle.model.cuda_line import CudaLine
from rekindle.model.platform import Platform
from rekindle.model.torch_pin import CPU, TorchPin
from rekindle.review.builds import ScriptBuild, kept
from rekindle.review.document import LISTS
from rekindle.review.environment import environments_of
from rekindle.review.packages import INSTALLERS, Install, exact_text, install_of
from rekindle.review.rules import architecture, code
from rekindle.review.script_torch import ScriptTorch
from rekindle.review.subject import Subject
from rekindle.review.trace import Invocation, Word
from rekindle.stack import offers, prebuilt
from rekindle.stack.candidates import JETSON_WHEELS, against_place
from rekindle.stack.driver import window_of
from rekindle.stack.programs import for_program, refused
from rekindle.stack.rules import Effect
from rekindle.stack.situation import Situation, Wish

_UNKNOWN = frozenset({"wheel-unknown", "math-unknown"})
_NO_CUDA = "the Python package index has torch for Windows without CUDA"


class CardAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """One environment and one card: what each alternative of its torch answers."""

    situation: Situation
    every: tuple[tuple[ScriptTorch, Judgement], ...]

    @property
    def fits(self) -> bool:
        """One alternative is enough: which of them somebody takes is theirs to choose."""
        return any(isinstance(answer, Fits) for _, answer in self.every)

    @property
    def clashes(self) -> list[tuple[ScriptTorch, Clash]]:
        """What none of the alternatives does. One that is meant for the CPU is nobody's fault beside others."""
        found = [(torch, answer) for torch, answer in self.every if isinstance(answer, Clash)]
        card = [(torch, answer) for torch, answer in found if torch.variant != CPU]
        return (card or found) if len(found) == len(self.every) else []

    @property
    def questions(self) -> list[str]:
        if self.fits:
            return []
        return [f"line {torch.line}: {each.missing}" for torch, each in self.every if isinstance(each, Unknown)]

    @property
    def loses(self) -> list[tuple[ScriptTorch, str]]:
        found = [(torch, answer) for torch, answer in self.every if isinstance(answer, Fits)]
        return (
            [(torch, each) for torch, answer in found for each in answer.loses] if len(found) == len(self.every) else []
        )


@kept
def answered(subject: Subject) -> list[CardAnswers]:
    """The card question, asked once for what each environment ends with."""
    return [each for final in environments_of(subject).final for each in _asked(subject, final) if subject.gpus]


def ready_made(subject: Subject, step: ScriptBuild) -> bool:
    """The project has a wheel for the torch that is there, and its own setup.py takes it: nothing is compiled."""
    found = subject.install(step.item, step.name) if step.how == "pip" else None
    wanted = found.named(step.name) if found is not None and not found.has("--no-binary") else None
    if wanted is None or wanted.source is not None:
        return False
    rows = [row for row in extension_files.files(step.name) if row.by is None and row.switch is None]
    # Without a pin pip takes the newest release, whichever torch the older ones have a wheel for.
    from packaging.version import parse

    newest = max((row.version for row in rows if row.version[:1].isdigit()), key=parse, default=None)
    exact = exact_text(wanted.requirement) or (newest if not wanted.requirement else None)
    for torch in environments_of(subject).at(step.item)[-1:]:
        for row in rows if torch.version and exact else ():
            pin, place = TorchPin(str(torch.version), torch.variant), Platform(torch.system, subject.machine)
            asked = extension_files.AskedFile(torch=pin, python=torch.python or row.pythons[-1], platform=place)
            if exact == row.version and not extension_files.lacking(row, asked):
                return True
    return False


def settled(subject: Subject) -> Iterator[str]:
    """Each question about the cards that was asked and is answered with yes."""
    for answers in answered(subject):
        fitting = next((torch for torch, answer in answers.every if isinstance(answer, Fits)), None)
        if fitting is not None:
            yield f"{fitting.name or fitting.spoken} serves {answers.situation.cards[0].name}"
    archs = architecture.compiled_for(subject)
    targets = [Target.parse(each) for each in archs]
    if subject.gpus and all(architecture.run(targets, card) for card in subject.gpus):
        yield f"what is compiled for {', '.join(archs)} runs on the card"
    yield from code.settled(subject) if subject.gpus else ()
    for step in subject.builds if subject.gpus and not archs else ():
        cuda = subject.cuda_at(step.item) if step.what != "other" else None
        if cuda and all(isinstance(compiles(cuda.version, card, "the card"), Fits) for card in subject.gpus):
            yield f"CUDA {cuda.version} compiles {step.name or 'it'} for the card"


def _asked(subject: Subject, final: list[ScriptTorch]) -> Iterator[CardAnswers]:
    first = final[0]
    inside = bool(subject.trace.images)
    whole = subject.asked.situation(first.system, python=first.python, glibc=first.glibc, image=inside)
    tags = [tag for image in subject.trace.images if (tag := _L4T.search(image.name))]
    if tags and (release := release_of(f"{tags[-1][1]}.{tags[-1][2]}")):
        whole = msgspec.structs.replace(whole, jetpack=int(tags[-1][1]), system_name=f"JetPack {release}")
    for card in whole.cards:
        situation = msgspec.structs.replace(whole, cards=(card,))
        yield CardAnswers(situation=situation, every=tuple((torch, serves(torch, situation)) for torch in final))


def serves(torch: ScriptTorch, situation: Situation) -> Judgement:
    """Whether the torch of an environment serves the cards, and is run by their driver."""
    against = [each for each in against_place(situation, Wish()) if each.kind is Effect.REJECTS]
    if against:
        return Clash(sentence=against[0].sentence, source=against[0].source)
    if torch.variant == CPU:
        why = f"{_NO_CUDA}; " if torch.system == "windows" and torch.index is None and torch.kind == "wheel" else ""
        source = "download.pytorch.org"
        return Clash(sentence=f"{why}{torch.spoken} has no code for any GPU", source=source)
    if torch.variant and torch.variant.startswith(("rocm", "xpu")):
        maker = "AMD" if torch.variant.startswith("rocm") else "Intel"
        sentence = f"{torch.spoken} is for the GPUs of {maker}: it has no code for NVIDIA's"
        return Clash(sentence=sentence, source="download.pytorch.org")
    if torch.kind == "program":
        return _program(torch, situation)
    if torch.kind == "wheel" and any(card.jetson for card in situation.cards):
        return Clash(sentence=f"{torch.spoken} is PyTorch's own: {JETSON_WHEELS}", source="NVIDIA: PyTorch for Jetson")
    found = [] if torch.kind == "other" or torch.version is None else _offers(torch, situation)
    if not found:
        return _otherwise(torch, situation)
    if torch.kind == "conda-forge":
        # conda takes no build that the driver does not run, and asks for nothing about the card.
        free = msgspec.structs.replace(situation, driver=None)
        driven = (each for each in found if isinstance(_considered(each, situation), Fits))
        other = (each for each in found if isinstance(_considered(each, free), Clash))
        found = [*driven, *other] or found
    answers = [_considered(offer, situation) for offer in found]
    clashes = [each for each in answers if isinstance(each, Clash)]
    if len(clashes) == len(answers):
        return clashes[-1]
    if all(isinstance(each, Fits) for each in answers):
        return answers[-1]
    lacking = next((each for each in answers if isinstance(each, Unknown)), None)
    return lacking or Unknown(missing=torch.question or f"which build of {torch.spoken} is taken here")


def _offers(torch: ScriptTorch, situation: Situation) -> list[offers.Offer]:
    place = Platform(torch.system, situation.arch)
    line = CudaLine.parse(torch.variant)
    if torch.kind == "conda-forge":
        rows = [offer for offer in offers.conda(place) if offer.torch == torch.version]
        return [offer for offer in rows if line is None or offer.cuda == line.cuda]
    try:
        official = offers.official_of(torch.version or "", place)
    except UnknownName:
        # Before 1.10 the ordinary index had a line of its own, which `_early` knows.
        # A release and its patches were built by the same scripts.
        minor = Version(torch.version or "0").major_minor
        same = [offer for offer in offers.old(place) if Version(offer.torch).major_minor == minor and torch.variant]
        official = tuple([offer for offer in same if offer.torch == torch.version] or same)
    return [offer for offer in official if torch.variant in (None, offer.variant)]


def _considered(offer: offers.Offer, situation: Situation) -> Judgement:
    # The system of an image is not that of the machine, and its Python is asked about on its own.
    free = msgspec.structs.replace(situation, python=None)
    route, broken = prebuilt.consider(offer, free, Wish(), window_of(free))
    fatal = [each for each in broken if each.kind is Effect.REJECTS]
    sure = [each for each in fatal if each.rule not in _UNKNOWN]
    if sure:
        return Clash(sentence=sure[0].sentence, source=sure[0].source)
    targets = [Target.parse(each) for code in offer.code for each in code.targets]
    ptx = [each.capability for each in targets if each.ptx]
    # The Windows wheels of CUDA 11 carry PTX of compute_37 alone.
    if fatal and ptx and max(ptx) <= _OLD_PTX:
        words = f"{offer.label} reaches a card newer than its CUDA only through PTX for {_OLD_PTX} or older, in which"
        return Clash(sentence=f"{words} torch's own kernels stop: it does not run there", source=_OLD_PTX_SEEN)
    if fatal or route is None:
        return Unknown(missing=fatal[0].sentence if fatal else f"what {offer.label} holds")
    return Fits(loses=tuple(each.sentence for each in broken if each.kind is Effect.COSTS))


_OLD_PTX = Capability.parse("5.0")
_OLD_PTX_SEEN = (
    "TMElyralab/MuseTalk issue 375 (FATAL: this function is for sm80, but was built for sm370); RVC-Boss/GPT-SoVITS "
    "issues 2205 and 2478"
)


def _otherwise(torch: ScriptTorch, situation: Situation) -> Judgement:
    """A build that is not in the tables: what its CUDA, or its time, rules out is ruled out all the same."""
    for card in situation.capabilities:
        nightly = "/nightly/" in (torch.index or "") and nightly_code(torch.variant, torch.system, card)
        answer = nightly or _early(torch, card) or any_code(torch.version, torch.variant, card)
        if isinstance(answer, Clash):
            return answer
    line = CudaLine.parse(torch.variant)
    driven = driver_cuda.runs(situation.driven_by, line.cuda) if line and situation.driven_by else None
    if isinstance(driven, Clash):
        return driven
    own = _monthly(torch.name or "", situation) or _of_jetson(torch.name or "", situation)
    if own is not None:
        return own
    image = next((row for row in projects.images() if row.tag == torch.name and row.variant), None)
    if image is not None:
        lacking = next((card for card in situation.capabilities if not has_code(image, card)), None)
        if lacking is None:
            return Fits()
        return Clash(sentence=f"{image.label}, has no code for a GPU of capability {lacking}", source=image.source)
    answers = [_early(torch, card) or early_code(torch.version, torch.variant, card) for card in situation.capabilities]
    if clash := next((each for each in answers if isinstance(each, Clash)), None):
        return clash
    if answers and all(isinstance(each, Fits) for each in answers):
        return Fits()
    return Unknown(missing=torch.question or f"what {torch.spoken} holds is not in the tables")


def _program(torch: ScriptTorch, situation: Situation) -> Judgement:
    """The release of vLLM in its own image, as `plan --for` answers it. A row stands for those before it, too."""
    tag = (torch.name or "").rpartition(":")[2] if ":" in (torch.name or "") else "latest"
    rows = programs.releases("vllm")
    asked = Version.find(rows[0].version if tag == "latest" else tag)
    known = [(number, each) for each in reversed(rows) if (number := Version.find(each.version))]
    row = next((each for number, each in known if asked is not None and number >= asked), None)
    before = [each for number, each in known if asked is not None and number <= asked]
    inside = msgspec.structs.replace(situation, system="linux", python=None)
    against = refused(row, inside) if row is not None else None
    if row is not None and before and not (against or refused(before[-1], inside)):
        return Fits()
    if row is None or against is None:
        return Unknown(missing=f"whether `{torch.name}` runs on the card")
    newest = for_program("vllm", inside).version
    other = f"; {newest} is the newest that does" if newest else ""
    return Clash(sentence=f"`{torch.name}` does not run here: {against}{other}", source=row.source)


_MONTH = re.compile(r"nvcr\.io/nvidia/pytorch:(\d\d\.\d\d)")
# NVIDIA's forward compatibility takes older drivers, and is not for these.
_NO_CENTRE = re.compile(r"GeForce|TITAN")


def _monthly(name: str, situation: Situation) -> Clash | Fits | None:
    """NVIDIA's image of a month, by the rows around it: their CUDA and their oldest card only grow."""
    asked = _MONTH.match(name)
    months = {found[1]: row for row in projects.images() if (found := _MONTH.match(row.tag))}
    before = [months[month] for month in sorted(months) if asked and month <= asked[1]]
    after = [months[month] for month in sorted(months) if asked and month > asked[1]]
    if not before:
        return None
    least, driver = before[-1], situation.driven_by
    answer = driver_cuda.runs(driver, least.cuda) if driver is not None else None
    for card in situation.cards:
        if isinstance(answer, Clash) and _NO_CENTRE.search(card.name):
            sentence = f"`{name}` is of CUDA {least.cuda} or newer, and {answer.sentence}"
            return Clash(sentence=f"{sentence}; its forward compatibility is not for {card.name}", source=least.source)
        if least.oldest is not None and max(card.capabilities) < least.oldest:
            return Clash(sentence=f"`{name}` has no code for cards older than {least.oldest}", source=least.source)
        first = min((able_toolkits(each)[0] for each in card.capabilities if able_toolkits(each)), default=None)
        if after and first is not None and first > after[0].cuda:
            sentence = f"`{name}` is older than CUDA {first}, the first that compiles for {card.name}"
            return Clash(sentence=sentence, source=after[0].source)
    exact = asked is not None and asked[1] in months
    around = (least,) if exact else (least, *after[:1])
    oldest = next((row.oldest for row in (around[-1], *after) if row.oldest is not None), None)
    sides = (exact or after) and oldest is not None and all(oldest <= card for card in situation.capabilities)
    served = sides and all(row.cuda in able_toolkits(card) for row in around for card in situation.capabilities)
    driven = driver is None or not any(isinstance(driver_cuda.runs(driver, row.cuda), Clash) for row in around)
    return Fits() if served and driven else None


_L4T = re.compile(r"\bl4t-\w+:r(\d\d)\b(?:\.(\d{1,9}))?")


def _of_jetson(name: str, situation: Situation) -> Clash | Fits | None:
    """An image for Jetson: its tag names the system of the board that it is for."""
    tag = _L4T.search(name)
    for card in situation.cards if tag else ():
        systems = {pack.l4t for pack in jetpacks(card.jetson)} if card.jetson else set()
        if tag and int(tag[1]) not in systems:
            other = f": it runs L4T {', '.join(map(str, sorted(systems)))}" if systems else ""
            sentence = f"`{name}` is for Jetson boards with L4T {tag[1]}, not for {card.name}{other}"
            return Clash(sentence=sentence, source="NVIDIA NGC: tags of l4t-pytorch; JetPack's releases")
    return Fits() if tag else None


@cached
def _early(torch: ScriptTorch, card: Capability) -> Judgement | None:
    """A Linux wheel of torch 1.0 to 1.9 from the ordinary index; None for any other."""
    if torch.version is None or torch.variant is not None or torch.kind != "wheel" or torch.system != "linux":
        return None
    minor = Version(torch.version).major_minor
    row = next((each for each in old_wheels() if Version(each.version).major_minor == minor), None)
    found = share(row, card) if row is not None else None
    if found is None or row is None:
        return None
    if found.coverage is Coverage.SERVES:
        return Fits()
    part = f"{found.runs} of {found.containers} containers of its largest library"
    if found.nearly:
        return Unknown(missing=f"{torch.spoken} has code for a GPU of capability {card} in {part} only")
    return Clash(
        sentence=f"{torch.spoken} has no code for a GPU of capability {card} ({card.sm}) in all its parts: {part}",
        source=row.source,
    )


def _by_its_own_list(subject: Subject, step: ScriptBuild) -> bool:
    """A project that takes no list of yours: has what the toolkit makes of its own list code for the cards?"""
    cuda, found = subject.cuda_at(step.item), subject.install(step.item, step.name)
    wanted = found.named(step.name) if found is not None else None
    row = extension_builds.own_targets(step.name, exact_text(wanted.requirement) if wanted else None)
    if row is None or cuda is None:
        return False
    made = [each for each in row.targets if cuda.version in able_toolkits(each.capability)]
    return all(architecture.run(made, card) for card in subject.gpus)


def _taking(archs: Sequence[str]) -> str:
    """The toolkits of the tables that compile for all of a list, as the end of a question."""
    cards = [Target.parse(each).capability for each in archs if each.startswith("sm_")]
    able = set.intersection(*(set(able_toolkits(card)) for card in cards)) if cards else set()
    if not cards or len(able) == len(toolkits()):
        return ""
    if not able:
        return "; none that is known takes the whole list"
    first, last = str(min(able)), str(max(able))
    return f"; the whole list is taken by CUDA {first if first == last else f'{first} to {last}'} only"


def _of_board(subject: Subject, archs: Sequence[str]) -> bool:
    """A Jetson compiles with the toolkit of its JetPack: does each of them take the whole list?"""
    place = subject.asked.place
    boards = [card.jetson for card in place.cards if card.jetson] if place else []
    cudas = {pack.cuda for board in boards for pack in jetpacks(board)}
    wanted = [Target.parse(each).capability for each in archs]
    rows = [row for row in toolkits() if row.version in cudas]
    return bool(wanted) and len(rows) == len(cudas) > 0 and all(row.has_target(each) for row in rows for each in wanted)


def unsaid(subject: Subject) -> list[Word]:
    """What is installed and stands in a variable whose value nobody knows."""
    return [word for found in subject.installs for word in found.item.words if not word.known]


def questions(subject: Subject) -> Iterator[str]:
    """Each question that the named cards raise and nothing answers."""
    for answers in answered(subject):
        yield from answers.questions
    yield from code.open_questions(subject)
    every = [step for step in subject.builds if step.what != "other" and step.item.reached]
    steps = [step for step in every if not ready_made(subject, step)]
    archs = architecture.compiled_for(subject)
    for step in steps[:1]:
        cuda = subject.cuda_at(step.item)
        if cuda is None and _of_board(subject, archs):
            continue
        if cuda is None:
            yield f"line {step.line}: which CUDA toolkit compiles {step.name or 'it'}{_taking(archs)}"
        elif isinstance(compiles(cuda.version, min(subject.gpus), "the card"), Unknown):
            yield f"line {step.line}: what CUDA {cuda.version} compiles for is not in the tables"
        told = archs or any(each.targets for each in code.compiled(subject) if each.item.order == step.item.order)
        if not told and subject.document.dialect.unattended and not _by_its_own_list(subject, step):
            yield f"line {step.line}: which architectures it is compiled for, where no GPU is visible"
    for unread in subject.trace.not_understood:
        if not unread.text or {"torch", *INSTALLERS} & {*re.findall(r"[\w.]+", unread.text)}:
            yield f"line {unread.line}: what it installs: {unread.why}"
    for item in subject.trace.invocations:
        parts = iter(re.split(r"[\s;|&'\"=<>~!@,\[\]()]+", item.text) if "torch" in item.text else ())
        # `pip`, `install` and `torch` stand in it, in this order.
        may = all(any(part in each for part in parts) for each in (INSTALLERS, ("install", "add"), ("torch",)))
        if may and item.program not in _SAYS and install_of(item) is None:
            yield f"line {item.line}: what `{' '.join(item.text[:80].split())}` installs: it was not read"
    unknown = unsaid(subject)
    alone = [word for found in subject.installs if not (found.wanted or found.lists) for word in found.item.words]
    for word in [word for word in alone if word.loose] if answered(subject) else unknown:
        yield f"line {word.line}: what `{word.raw[:60]}` is, which is installed"
    unread_lists: list[str] = []
    for found in subject.installs:
        fed = found.verb == "install" and not (found.wanted or found.lists or unknown)
        if fed and found.tool != "conda" and found.item.arguments[-1:] == ("install",):
            yield f"line {found.item.line}: what `{' '.join(found.item.text[:60].split())}` is given to install"
        beside = "asks for: it does not lie beside the script"
        names = [name for name in found.lists if not subject.lies_beside(name, found.item)]
        rows = [f"line {found.item.line}: what `{name[:60]}` {beside}" for name in names]
        yield from rows
        unread_lists += rows
    projects_unread = [found.item.line for found in subject.installs if _is_unread_project(subject, found)]
    for line in projects_unread:
        yield f"line {line}: what the project in this folder asks for: it does not lie beside the script"
    for run in filter(None, map(_runs_script, subject.trace.invocations)):
        if _INSTALLER.search(run[0]):
            yield _unread_script(*run)
    for change in environments_of(subject).replaced:
        if change.left and change.after.version:
            words = f"whether {' and '.join(change.left)}, made for another torch, goes with {change.after.spoken}"
            yield f"line {change.wanted.line}: {words}"
    others = bool(code.compiled(subject)) or any(code.without_cuda(subject))
    if not (every or unread_lists or unknown or answered(subject) or others or projects_unread):
        yield nothing_said(subject)


def _is_unread_project(subject: Subject, found: Install) -> bool:
    """A project that is installed and was not read may ask for another torch."""
    own = any(re.fullmatch(r"\.[\\/]?(?:\[[\w, -]+\])?", each.source or "") for each in found.wanted)
    if not (own or found.verb == "sync") or found.has("--no-deps"):
        return False
    steps = [step for step in subject.builds if step.item.order == found.item.order]
    known = any(step.what == "torch" or script_rules.extension(step.name) for step in steps)
    return not known and not subject.lies_beside("pyproject.toml", found.item)


def nothing_said(subject: Subject) -> str:
    """Where no torch shows: the script that does the work and was not read, else that there is none."""
    other = next((run for item in subject.trace.invocations if (run := _runs_script(item))), None)
    if other is not None:
        return _unread_script(*other)
    what = "list" if subject.document.dialect in LISTS else "script"
    return f"which torch this {what} is for: it installs and builds none"


# Another script whose name says that it installs may bring another torch.
# These only speak of it.
_SAYS = frozenset(
    {"echo", "printf", "print", "cat", "grep", "sed", "awk", "write-host", "write-output", "logger", "raise"}
)
# `/uv-installer.sh` is uv's own, by the name that its documentation gives it.
_INSTALLER = re.compile(
    r"(?i)(?:^|(?<!/uv)[\\/_-])(?:install|setup|bootstrap|dep(?:s|endenc)|requirements)[\w-]*\.\w+\Z"
)


def _unread_script(name: str, line: int) -> str:
    return f"line {line}: what `{name[:60]}` does, which this script runs: it was not read"


def _runs_script(item: Invocation) -> tuple[str, int] | None:
    """Another script that a command hands the work to, with its line."""
    script = re.compile(r"(?i)[\w./\\~-]*\.(?:sh|bash|bat|cmd|ps1)\Z")
    found = next((word for word in item.words if script.match(word.text)), None)
    starts = item.program in ("bash", "sh", "zsh", "source", ".", "call", "cmd", "powershell", "pwsh")
    direct = found is item.words[0] if item.words else False
    return (found.text, found.line) if found is not None and (starts or direct) and item.reached else None
