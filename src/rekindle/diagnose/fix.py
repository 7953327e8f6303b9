"""The fix of a cause, written for this machine and plan: templates filled from the log, the facts and the tables."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

import msgspec

from rekindle.compat import driver_card
from rekindle.compat.host_compiler import toolsets_of
from rekindle.compat.library_card import cudnns_for, last_cudnn
from rekindle.core.command import Command, Piece, Shell, ShellVariable, Word, pip
from rekindle.core.console import clean
from rekindle.core.errors import BadInput
from rekindle.core.findings import Fix
from rekindle.core.version import Version
from rekindle.diagnose import advice, architectures, compilers, driver_facts, package_facts, pairs, symbols
from rekindle.diagnose.evidence import foreign, refused
from rekindle.diagnose.expressions import World, facts_of, holds
from rekindle.diagnose.facts import Facts, present
from rekindle.diagnose.recovered import tried
from rekindle.diagnose.symbols import plain_name
from rekindle.inputs.versions import read_cudnn
from rekindle.knowledge.builds.script_rules import extension
from rekindle.knowledge.gpu.names import vendors
from rekindle.knowledge.logs.extension_homes import distribution, home
from rekindle.knowledge.logs.signatures import CauseRow, FixStep, of_cause
from rekindle.knowledge.torch import wheel_platforms
from rekindle.knowledge.torch.options import options
from rekindle.model.cuda_line import CudaLine
from rekindle.model.torch_pin import TorchPin
from rekindle.stack import coverage

_FIELD = re.compile(r"\{(\w+)\}")
_FIRST_IN_WORD = re.compile(r"(?<![^\s\"'])\{(\w+)\}")
# Several projects put their modules below these names.
_SHARED_NAMES = frozenset({"google", "nvidia", "azure", "ruamel", "zope", "backports", "sphinxcontrib", "jaraco"})
# The major versions of cuDNN that the package nvidia-cudnn-cu12 has.
_CUDNN_ON_PIP = ("8", "9")
_CUDA_ON_PIP = (13, 12, 11)
# vcvars64.bat is on no PATH; a developer prompt names its folder.
_LOAD_VCVARS = r'call "%VCINSTALLDIR%Auxiliary\Build\vcvars64.bat"'
# A wheel of PyTorch's own index, which are for the cards of NVIDIA in PCs and servers; and what Rekindle installs.
_CUDA_BUILD = re.compile(r"whl/cu|/cu1\d\d`|rekindle install --torch|\{cuda_lines\}|torch-cuda")
_OUR_BUILD = re.compile(r"^rekindle (?:install|plan)\b")
_INSTALLS = re.compile(r"^(?:pip|rekindle) install\b")
# What came from a log goes into a command that a person may paste: only harmless characters pass.
_HARMLESS = re.compile(r"[\w.+,:;/\\ ()\[\]<>=~-]*")
# What only Debian and its kin have; nobody told: theirs is the most common system.
_APT = re.compile(r"\b(?:apt|apt-get|ubuntu-drivers|update-initramfs|add-apt-repository)\b")
_DEBIANS = (None, "ubuntu", "debian")
_ONE_WORD = re.compile(r"[\w.+,:/\\=-]+")
# What the tables, not a log, write into a command, as words of it.
_OUR_WORDS = frozenset(
    {"load_vcvars", "home_install", "package_install", "missing_install", "part_option"}
    | {"built_set", "parties_set", "companions", "driver_install", "module_build", "home_forced"}
)


# The facts that a step may name.
_FACTS = (
    "os", "torch", "cuda", "python", "toolset", "gpu_name", "jobs",
    "driver", "toolkit", "status_program", "program", "windows_build", "library_cuda", "hidden", "cuda_package",
    "runtime_image", "glibc",
)  # fmt: skip
_TOO_OLD, _NO_CODE, _NAME = "gpu_too_old_for_kernel", "no_kernel_image", re.compile(r"[A-Za-z][\w-]{3,}")
# The fields that name whose the failure is.
_WHO = ("owner", "failing", "module", "package")
# What the first screen has room for.
MOST_WORDS = 60


def write(cause: CauseRow, fields: Mapping[str, str], facts: Facts, done: Sequence[str] = ()) -> tuple[Fix, ...]:
    """The thing to do first, then what else may help: every step that can be filled and fits the system.

    `done` are the lines that say what was tried: such a step is none, while there is another.
    """
    fields = {"package": facts.package, **fields} if facts.package else fields
    if "locked_name" in fields:
        fields = {**fields, "package": f"{fields['locked_name']}=={fields.get('locked_version', '')}".rstrip("=")}
    told = fields.get("said", "") if cause.id == _TOO_OLD else facts.unserved or "" if cause.id == _NO_CODE else ""
    never = _left_out(fields, facts, told)
    if never is not None:
        return (msgspec.structs.replace(never, commands=tuple(_where(each, facts) for each in never.commands)),)
    values = _values(fields, facts)
    world = _world(fields, values, facts)
    facts = driver_facts.known(fields, facts)
    fitting = [step for step in cause.fix if _fits(step, facts) and (step.when is None or holds(step.when, world))]
    fitting, vain = _untried(fitting, values, facts, done)
    fitting = [step for step in fitting if step.instead and _fill(step, values, facts)] or fitting
    filled = _all(fitting, values, facts, fallback=False)
    made_to_measure = [step for step in fitting if not step.fallback and (step.plan or _FIELD.search(_template(step)))]
    if not filled or (made_to_measure and not _all(made_to_measure, values, facts, fallback=False)):
        filled = [*_all(fitting, values, facts, fallback=True), *filled]
    merged: dict[str, tuple[Command, ...]] = {}
    for step in filled:
        merged[step.text] = (*merged.get(step.text, ()), *step.commands)
    steps = [Fix(text=text, commands=tuple(dict.fromkeys(commands))) for text, commands in merged.items()]
    # Where no step can be filled, what a person would look at.
    looked = Fix(text=f"Look first: {cause.by_hand}" if cause.by_hand else "")
    first, *more = _apart(steps) or [looked]
    if vain:
        first = msgspec.structs.replace(first, text=f"`{vain}` was tried, the text says. {first.text}".rstrip())
    return (msgspec.structs.replace(first, mechanical=bool(of_cause(cause.id))), *more)


def _untried(
    steps: list[FixStep], values: Mapping[str, str], facts: Facts, done: Sequence[str]
) -> tuple[list[FixStep], str]:
    """Without the steps whose command was tried, and the first of those; all of them where nothing else is left."""
    made = [_fill(step, values, facts) for step in steps] if done else []
    firsts = {index: each.commands[0] for index, each in enumerate(made) if each and each.commands}
    vain = {index: command for index, command in firsts.items() if tried(command, done)}
    left = [step for index, step in enumerate(steps) if index not in vain]
    return left or steps, str(next(iter(vain.values()), ""))


def _apart(steps: list[Fix]) -> list[Fix]:
    """The first step, with what goes on from it as far as a screen has room; the others after it."""
    if not steps:
        return []
    first = steps.pop(0)
    text, rest = _begun(first.text)
    left = Fix(text=rest or "Then:", commands=first.commands[1:]) if rest or len(first.commands) > 1 else None
    first = Fix(text=text, commands=first.commands[:1])
    while steps and not left and len(f"{first.text} {steps[0].text}".split()) <= MOST_WORDS:
        # What goes on, and the command for what was said; another way is for whom the first does not help.
        goes_on = steps[0].text.startswith("Then") and not steps[0].commands
        if not goes_on and (first.commands or len(steps[0].commands) != 1):
            break
        after = steps.pop(0)
        first = Fix(text=f"{first.text} {after.text}", commands=first.commands or after.commands)
    return [first, *([left] if left else []), *steps]


def _begun(text: str) -> tuple[str, str]:
    """The sentences that a screen has room for, and the others; a sentence of its own length is cut at a semicolon."""
    for end in (r"(?<=[.:])(?<!\(evidence:)\s(?=[A-Z`\"])", r"(?<=[;,:])\s"):
        parts = re.split(end, text)
        count = next((n for n in range(len(parts), 0, -1) if len(" ".join(parts[:n]).split()) <= MOST_WORDS), None)
        if count is not None:
            return " ".join(parts[:count]), " ".join(parts[count:])
    return text, ""


def _left_out(fields: Mapping[str, str], facts: Facts, said: str) -> Fix | None:
    """A package that no build of will ever run on this card is left out. None: the card is not known, or new enough."""
    if not facts.gpus:
        return None
    newest = max(facts.gpus)
    names = [*(fields[name] for name in _WHO if name in fields), *_NAME.findall(said)]
    rows = (home(plain_name(name)) for name in names)
    row = next((row for row in rows if row is not None and row.begins is not None and newest < row.begins), None)
    if row is None:
        return None
    card = facts.gpu_name or newest.sm
    if row.begins_since and not row.from_source:
        text = f"Take a {row.package} before {row.begins_since}: later ones begin with {row.begins}, above {card}."
        return Fix(text=text, commands=(pip("install", f"{row.package}<{row.begins_since}", system=facts.os),))
    text = f"Leave {row.package} out: it has code from {row.begins} on, and no build of it runs on this card ({card})."
    told = f" {row.instead[:1].upper()}{row.instead[1:]}." if row.instead else ""
    return Fix(text=text + told, commands=(pip("uninstall", "-y", row.package, system=facts.os),))


def _all(steps: Sequence[FixStep], values: Mapping[str, str], facts: Facts, *, fallback: bool) -> list[Fix]:
    made = (_fill(step, values, facts) for step in steps if step.fallback is fallback)
    return [step for step in made if step]


def _template(step: FixStep) -> str:
    return f"{step.text} {step.command or ''}"


def _world(fields: Mapping[str, str], values: Mapping[str, str], facts: Facts) -> World:
    """`target` is the architecture that is asked for, else the card; `failing` is torch where no package shows."""
    asked = fields.get("arch_asked", "")
    card = max(facts.gpus) if facts.gpus else None
    more = facts_of(
        facts,
        failing="torch",
        said=fields.get("said", ""),
        target=(architectures.architecture_asked_for(asked) if asked.startswith("sm_") else None) or card,
        cudnn_never=card is not None and coverage.never_in_cudnn(card),
        numpy_older=pairs.numpy_is_older(fields.get("said", "")),
    )
    return World(fields=fields, values=values, facts=more)


def _fits(step: FixStep, facts: Facts) -> bool:
    """A step of another system is none; nor is a CUDA build of PyTorch where it cannot run, or pip where it is not."""
    if (facts.vendor or {"jetson", "nvidia_torch"} & {*facts.signs}) and _CUDA_BUILD.search(_template(step)):
        return False
    if (facts.vendor or "nvidia_torch" in facts.signs) and (step.plan or _OUR_BUILD.search(step.command or "")):
        return False
    if "frozen" in facts.signs and (step.plan or _INSTALLS.search(step.command or "")):
        return False
    return step.os is None or facts.os is None or step.os == facts.os


def _fill(step: FixStep, values: Mapping[str, str], facts: Facts) -> Fix | None:
    text = _filled(step.text, values)
    command = command_of(step.command, step.os or facts.os, values) if step.command else None
    if text is None or (step.command and command is None) or (command and refused(command, facts)):
        return None
    theirs = foreign(command, facts) if command else None
    text, command = (f"{text} {theirs}", None) if theirs else (text, command)
    native = _native(command, facts.distribution) if command else None
    commands = (native,) if native else ()
    if step.plan:
        advised = advice.advise(facts, keep_torch=step.keep)
        if advised is None and not step.alone:
            return None
        if advised is not None:
            text, commands = f"{text} {advised.text}", (*commands, *advised.commands)
    placed = tuple(_in_prompt(_where(each, facts), facts) for each in commands)
    inside = any(str(each).startswith(("./", ".\\")) for each in placed)
    return Fix(text=f"{text} Run it in the program's folder." if inside else text, commands=placed)


def _in_prompt(command: Command, facts: Facts) -> Command:
    if "cmd" not in facts.signs or not command.environment or command.system != "windows":
        return command
    return command.saying(*command.words, shell=Shell.CMD)


def _native(command: Command, distribution: str | None) -> Command | None:
    """`sudo apt install X` as the distribution has it; None where that is not known. Others stay as they are."""
    if distribution in _DEBIANS or not _APT.search(str(command)):
        return command
    words = command.words if command.words[:3] == ("sudo", "apt", "install") else ()
    there = wheel_platforms.installs(str(distribution), [str(word) for word in words[3:]]) if words else ()
    return command.saying(*there) if there else None


def _where(command: Command, facts: Facts) -> Command:
    """In the environment of the log, or of the program that brings one: a bare `pip` would serve another Python."""
    signs, folder = {*facts.signs}, facts.environment
    if folder and "environment" in facts.told:
        # Where a program keeps its own; not in a container or in an environment of conda.
        folder = None if {"docker", "conda"} & signs else folder if facts.os == "linux" else folder.replace("/", "\\")
    if folder and folder.endswith("/.local"):  # packages of a user, beside whichever Python: no environment
        return _of_log(command, facts).by_pip_of(f"python{facts.python or 3}", "-m", "pip")
    if folder and "uv" not in signs:
        return _in_environment(command, folder, facts)
    command = _of_log(command, facts)
    if "uv" not in signs:
        return command
    by_uv = command.by_pip_of("uv", "pip")
    # uv asks nothing before it removes a package.
    words = [word for word in by_uv.words if word != "-y"]
    ours = by_uv is not command
    return command.saying(*words) if ours else command


def _in_environment(command: Command, folder: str, facts: Facts) -> Command:
    """In the environment of the log, whichever is active where the line is pasted. Nobody's name is shown."""
    windows = "\\" in folder

    def below(path: str) -> Word:
        home = ShellVariable("USERPROFILE" if windows else "HOME")
        return (home, path.removeprefix("~")) if path.startswith("~") else path

    verb = command.words[:2]
    if verb in (("rekindle", "install"), ("rekindle", "audit")) and str((*command.words, "-")[2]).startswith("-"):
        return command.saying(*verb, below(folder), *command.words[2:])
    if command.words[:3] == ("rekindle", "extension", "find") and not {"--env", "--torch"} & {*command.words}:
        return command.saying(*command.words, "--env", below(folder))
    inside = "/bin/python" if not windows else r"\Scripts\python.exe" if _VENV.search(folder) else r"\python.exe"
    inside = "" if folder.endswith("PythonSlicer") else inside
    # An embedded Python would take the packages of another one of the user.
    alone = ["-s"] if folder.endswith("python_embeded") else []
    made = command.by_pip_of(below(folder + inside), *alone, "-m", "pip")
    ours = windows and made is not command
    return made.saying(*made.words, system="windows") if ours else made


# conda keeps its environments in `envs` (a one-click installer in `installer_files`), each with its Python at the top.
_VENV = re.compile(r"(?i)(?<!\\envs)(?<!\\installer_files)\\[^\\]*env[^\\]*$")


def _of_log(command: Command, facts: Facts) -> Command:
    """`extension find` asks for the torch of the active environment, which need not be that of the log."""
    if command.words[:3] != ("rekindle", "extension", "find") or {"--env", "--torch"} & {*command.words}:
        return command
    if facts.torch is None or facts.variant is None:
        return command
    card = min(facts.gpus).sm if facts.gpus and "--gpu" not in command.words else None
    told = present(torch=str(TorchPin(facts.torch, facts.variant)), python=facts.python, os=facts.os, gpu=card)
    more = (word for option, value in told.items() for word in (f"--{option}", value))
    return command.saying(*command.words, *more)


def _filled(template: str, values: Mapping[str, str]) -> str | None:
    if any(name not in values for name in _FIELD.findall(template)):
        return None
    return _FIELD.sub(lambda match: values[match[1]], template)


def _values(fields: Mapping[str, str], facts: Facts) -> dict[str, str]:
    values: dict[str, str] = {"load_vcvars": _LOAD_VCVARS} | _cudnn_package(facts) | _cudnn_least(fields)
    values |= present(**{name: getattr(facts, name) for name in _FACTS})
    if facts.vendor:
        hint = next(row.hint for row in vendors() if row.id == facts.vendor)
        values["vendor_hint"] = hint[:1].upper() + hint[1:]
    values |= _of_cards(facts) | pairs.values(fields, facts) | symbols.values(fields.get("said", ""))
    values |= architectures.values(fields, facts) | symbols.packages(fields) | compilers.values(fields, facts)
    values |= driver_facts.values(fields, facts) | package_facts.values(fields, facts)
    # A misspelt folder as it was meant, and the package that a library lies in.
    typo, place = fields.get("typo_folder"), re.match(r"(.*[/\\]torch)[/\\]lib[/\\]", fields.get("dll", ""))
    values |= present(right_folder=typo and f"/usr/local/{typo.rpartition('/')[2]}", torch_folder=place and place[1])
    for name, value in fields.items():
        kept = clean(value).strip()
        if kept and len(kept) <= 300 and _HARMLESS.fullmatch(kept):
            values[name] = kept
    return values | _spelled(values)


def _cudnn_package(facts: Facts) -> dict[str, str]:
    """By the libraries that are asked for, the torch that is there, or the toolkit; there is none before CUDA 11."""
    line = CudaLine.parse(facts.variant)
    cuda = Version(facts.library_cuda) if facts.library_cuda else line.cuda if line else Version(facts.cuda or "12")
    return {"cudnn_package": f"nvidia-cudnn-cu{cuda.major}"} if cuda.major >= 11 else {}


def _cudnn_least(fields: Mapping[str, str]) -> dict[str, str]:
    """The cuDNN that a program was built with, from the package of the newest CUDA that had it."""
    built = read_cudnn(fields["cudnn_built"]) if "cudnn_built" in fields else None
    if built is None:
        return {}
    line = next((major for major in _CUDA_ON_PIP if cudnns_for(major)[0].major_minor <= built), 11)
    pinned = f"nvidia-cudnn-cu{line}>={built.major_minor},<{built.major + 1}"
    return {"cudnn_least": str(built.major_minor), "cudnn_pinned": pinned}


def _of_cards(facts: Facts) -> dict[str, str]:
    """What the tables know of the cards: the oldest sets the limits."""
    if not facts.gpus:
        return {}
    oldest = min(facts.gpus)
    last, torch = last_cudnn(oldest), facts.torch
    # Of several cards those that the torch of the log has no code for.
    lacked = [each for each in facts.gpus if torch and coverage.torch_lacks(torch, facts.variant, facts.os, each)]
    return present(
        arch=";".join(str(gpu) for gpu in sorted(set(facts.gpus))),
        arch_digits=";".join(gpu.sm.removeprefix("sm_") for gpu in sorted(set(facts.gpus))),
        gpu=max(facts.gpus),
        gpu_sm=oldest.sm,
        lacked_sm=min(lacked or facts.gpus).sm,
        several_cards=len(set(facts.gpus)) > 1,
        oldest_card=(facts.gpu_name if facts.gpus[0] == oldest else None) or oldest.sm,
        newest_number=str(facts.gpus.index(max(facts.gpus))),
        last_cudnn=last and last.release,
        last_branch=driver_card.window(oldest, facts.counting).last,
    )


# `mistralcuda.lib` is a part of the build itself; `cudart.lib` and `cuda.lib` are the toolkit's.
_MADE_HERE = re.compile(r"(?i)(?:.*[\\/])?(?:lib)?(?!lib|cuda|c10_cuda|torch_cuda)[^\\/]*cuda[^\\/]*\.[^\\/]*")


def _spelled(values: Mapping[str, str]) -> dict[str, str]:
    """The same values as the steps want them: `sm_120` for 12.0, `12-4` and `opencv-python` for package names."""
    asked = next((values[name] for name in ("arch_asked", "arch_number", "arch_dotted") if name in values), None)
    inside = values.get("submodule", "").partition(".")[0]
    option = f"USE_{values.get('part', '').upper().replace('-', '_')}"
    studio, major = values.get("newest_studio"), values.get("cudnn_major")
    more = present(
        cuda_dashed=values.get("cuda", "").replace(".", "-"),
        arch_asked=asked and "sm_" + asked.rpartition("_")[2].replace(".", ""),
        package_name=plain_name(values.get("package", "")),
        # Python names the whole path only where the package itself was found.
        owner_package=inside if inside not in _SHARED_NAMES else None,
        own_cuda_input=values["input"] if _MADE_HERE.fullmatch(values.get("input", "")) else None,
        cudnn_pip=major if major in _CUDNN_ON_PIP else None,
        cudnn_old=major if major not in _CUDNN_ON_PIP else None,
        part_option=option if option in options() else None,
        studio_toolset=max(toolsets_of(studio), default=None) if studio else None,
    )
    for name, target in (("module", "distribution"), ("failing", "failing_distribution")):
        known = distribution(values[name]) if name in values else None
        if known:
            more[target] = known
            rows = (extension(known), home(known)) if target == "failing_distribution" else ()
            if any(row is not None and row.from_source for row in rows):
                more["from_source"] = known
    return more


_NEEDS_A_SHELL = re.compile(r"&|\||;|\$\(|`|[0-9]?>[ /&]|\*|~")
_IN_QUOTES = re.compile(r"""'[^']*'|"[^"$`%]*\"""")
_WINDOWS_WORD = re.compile(r'((?:"[^"]*"|[^\s"])+)')
_ASSIGNED = re.compile(r"[A-Za-z_]\w*=")
_SETS = ("export", "unset")
_UNIX_NAME = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
_WINDOWS_NAME = re.compile(r"%([A-Za-z_]\w*)%")


def command_of(template: str, system: str | None, values: Mapping[str, str]) -> Command | None:
    """`system`: where it will be pasted, if that is known; a line that only one shell reads says it itself.

    The words are those of the template: what a log says is a part of one word, however it is written, and never an
    option. None where a value is missing, or cannot stand where the template wants it.
    """
    if any(name not in values for name in _FIELD.findall(template)):
        return None
    text = _FIELD.sub(lambda match: values[match[1]] if match[1] in _OUR_WORDS else match[0], template)
    if any(values[match[1]].startswith("-") for match in _FIRST_IN_WORD.finditer(text)):
        return None
    verb = text.partition(" ")[0]
    system = "linux" if verb == "sudo" else system
    try:
        if verb in _SETS and "$(" not in text:
            return _setting(shlex.split(text), system, values)
        if _NEEDS_A_SHELL.search(_IN_QUOTES.sub("", text)):
            return _line_for_a_shell(text, values)
        if system == "windows" or verb == "call" or "%" in text:
            words = [
                _command_word(each.replace('"', ""), _WINDOWS_NAME, values) for each in _WINDOWS_WORD.findall(text)
            ]
            return Command(*words, system="windows", shell=Shell.CMD if verb == "call" or "%" in text else None)
        split = shlex.split(text)
        count = next((at for at, each in enumerate(split) if not _ASSIGNED.match(each)), len(split))
        before = _setting(split[:count], None, values).environment if count else {}
        rest = (_command_word(each, _UNIX_NAME, values) for each in split[count:])
        return Command(*rest, environment=before, system="linux" if before else system)
    except (BadInput, ValueError):
        return None


def _line_for_a_shell(text: str, values: Mapping[str, str]) -> Command | None:
    """Nothing quotes it again: outside of the template's own quotes only values that mean nothing to a shell stand."""
    for match in _FIELD.finditer(text):
        before = text[: match.start()]
        allowed = _HARMLESS if before.count('"') % 2 or before.count("'") % 2 else _ONE_WORD
        if not allowed.fullmatch(values[match[1]]):
            return None
    return Command.parse(_FIELD.sub(lambda match: values[match[1]], text))


def _setting(words: Sequence[str], system: str | None, values: Mapping[str, str]) -> Command:
    """`export A=1` and `unset A` of any shell; `$A` in a value is one of Unix, `%A%` one of Windows."""
    pairs = [each.partition("=") for each in words if each not in _SETS]
    windows = any("%" in value for _, _, value in pairs)
    unix = any("$" in value for _, _, value in pairs)
    name = _WINDOWS_NAME if windows else _UNIX_NAME
    environment = {key: _command_word(value, name, values) if sign else None for key, sign, value in pairs}
    return Command(environment=environment, system="windows" if windows else "linux" if unix else system)


def _command_word(text: str, variable: re.Pattern[str], values: Mapping[str, str]) -> Word:
    pieces: list[Piece] = []
    end = 0
    for match in variable.finditer(text):
        pieces += [text[end : match.start()], ShellVariable(next(name for name in match.groups() if name))]
        end = match.end()
    filled = [_filled(each, values) or "" if isinstance(each, str) else each for each in (*pieces, text[end:])]
    return tuple(each for each in filled if each != "") if pieces else str(filled[0])
