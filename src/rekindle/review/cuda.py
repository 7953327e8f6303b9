"""Architecture, toolkit, compiler: can this script make code that runs on the card?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rekindle.core.errors import RekindleError
from rekindle.core.findings import State
from rekindle.core.version import Version
from rekindle.knowledge.builds.script_rules import Pair, script_rules
from rekindle.knowledge.cuda import host_compilers, toolkits
from rekindle.knowledge.gpu.capability import Capability, Runs, Target, runs
from rekindle.knowledge.torch.releases import TorchRelease, torch_release
from rekindle.review.remark import Remark
from rekindle.review.said import Said, Setting, named_in


def check(said: Said) -> Iterator[Remark]:
    yield from _architecture(said)
    yield from _toolkit(said)
    yield from _compiler(said)
    yield from _pairs(said)


def release_of(said: Said) -> TorchRelease | None:
    """The release in the tables; None when the script names none or one they do not have."""
    if said.torch is None:
        return None
    try:
        return torch_release(str(said.torch))
    except RekindleError:
        return None


def _architecture(said: Said) -> Iterator[Remark]:
    spelled = said.setting("TORCH_CUDA_ARCH_LIST")
    if spelled and re.fullmatch(r"(?:sm_|compute_)?\d{2,3}(?:[;, ](?:sm_|compute_)?\d{2,3})*", spelled.value):
        dotted = re.sub(r"(?:sm_|compute_)?(\d{1,2})(\d)\b", r"\1.\2", spelled.value)
        yield _remark(
            said,
            spelled,
            "architecture-spelling",
            State.FAIL,
            f"TORCH_CUDA_ARCH_LIST wants {dotted}, not {spelled.value}",
            "torch reads numbers with a dot; anything else is an unknown architecture to it",
            "torch/utils/cpp_extension.py and select_compute_arch.cmake",
            spelled.value,
            dotted,
        )
    asked = said.targets()
    if asked is None:
        if _builds(said) and not spelled:
            yield Remark(
                id="architecture-not-said",
                state=State.WARN,
                line=1,
                text="",
                found="the script names no architecture (TORCH_CUDA_ARCH_LIST)",
                why="without it torch compiles for the cards of this machine, or for a common list where it sees none: "
                "slow, and perhaps without yours",
                source="torch cmake/public/cuda.cmake",
            )
        return
    setting, targets = asked
    for card in said.gpus:
        if any(runs(target, card) is not Runs.NO for target in targets):
            continue
        yield _remark(
            said,
            setting,
            "architecture-not-the-card",
            State.FAIL,
            f"{_named(targets)} does not run on a card of capability {card} ({card.sm})",
            "it compiles, and fails at run time: no kernel image is available. "
            "Machine code runs within its own major number only, PTX on newer cards only",
            "CUDA programming guide, binary and PTX compatibility",
            setting.value,
            _spelled(card, setting),
        )
    if said.cuda is None:
        return
    known = _known_toolkit(said.cuda)
    for target in targets if known else ():
        if known and not target.ptx and not known.has_target(target.capability):
            yield _remark(
                said,
                setting,
                "toolkit-cannot-target",
                State.FAIL,
                f"CUDA {said.cuda} cannot compile for {target.capability} ({_range(target.capability)})",
                "nvcc ends with: Unsupported gpu architecture",
                known.source,
            )


def _toolkit(said: Said) -> Iterator[Remark]:
    if said.cuda is None:
        return
    for setting in said.settings:
        other = re.search(r"(?i)CUDA[\\/]+v(\d+\.\d+)|cuda-(\d+\.\d+)", named_in(setting.value))
        number = (other[1] or other[2]) if other else None
        if number and Version(number) != said.cuda and setting.how == "environment":
            yield _at(
                said,
                setting.line,
                "two-toolkits",
                State.WARN,
                f"{setting.name} names CUDA {number}, and the build uses {said.cuda} (line {said.cuda_line})",
                "nvcc of one toolkit with headers or libraries of another: point every variable at the same one",
                "torch cmake/public/cuda.cmake (conflicting CUDA versions)",
            )
    known = _known_toolkit(said.cuda)
    for card in said.gpus if known else ():
        if known and not known.compiles_for(card):
            yield _at(
                said,
                said.cuda_line,
                "toolkit-not-for-the-card",
                State.FAIL,
                f"CUDA {said.cuda} makes no code for a card of capability {card} ({_range(card)})",
                "whatever else is right in the script, this toolkit cannot serve the card",
                known.source,
            )
    release = release_of(said)
    if release is None:
        return
    if said.cuda < release.min_cuda:
        yield _at(
            said,
            said.cuda_line,
            "toolkit-too-old-for-torch",
            State.FAIL,
            f"torch {said.torch} needs CUDA {release.min_cuda} or newer, not {said.cuda}",
            "CMake stops: PyTorch requires a newer CUDA",
            release.source,
        )
    official = sorted({variant.cuda for variant in release.variants})
    if official and said.cuda.major_minor not in official:
        listed = ", ".join(str(version) for version in official)
        yield _at(
            said,
            said.cuda_line,
            "toolkit-never-released",
            State.WARN,
            f"torch {said.torch} was released for CUDA {listed}, not for {said.cuda}",
            "it may build, but nobody tested this pair",
            release.source,
        )


def _compiler(said: Said) -> Iterator[Remark]:
    for command in said.commands:
        text = command.statement.text
        if re.search(r"(?i)vcvars32\.bat|vcvarsall(?:\.bat)?\"? +x86\b|vcvars\w*_x86\.bat|-arch=x86\b", text):
            yield _at(
                said,
                command.line,
                "x86-prompt",
                State.FAIL,
                "this loads the 32-bit compiler",
                "CUDA and PyTorch are 64-bit only: the build ends with LNK1112",
                "CUDA installation guide for Windows",
                corrected=re.sub(r"(?i)vcvars32\.bat", "vcvars64.bat", text) if "vcvars32" in text.lower() else None,
            )
    if said.cuda is None:
        return
    yield from _toolset(said, said.cuda)
    flags = [item for item in said.settings if "allow-unsupported-compiler" in item.value]
    for item in flags:
        verdict = _acceptance(said, said.cuda)
        if verdict is True:
            found, why = (
                f"-allow-unsupported-compiler is needless: CUDA {said.cuda} accepts this compiler",
                "it only switches a check off, and hides the day when the check would have been right",
            )
        else:
            found, why = (
                "-allow-unsupported-compiler switches off nvcc's check only",
                "the STL of toolset 14.40 and later has a gate of its own (STL1002: CUDA 12.4 or newer)",
            )
        yield Remark(
            id="unsupported-compiler-flag",
            state=State.WARN,
            line=item.line,
            text=_line(said, item.line),
            found=found,
            why=why,
            source="crt/host_config.h; yvals_core.h",
            corrected=""
            if verdict is True and item.how == "cmake" and item.value == "-allow-unsupported-compiler"
            else None,
        )


def _toolset(said: Said, cuda: Version) -> Iterator[Remark]:
    if said.toolset is not None:
        verdict = host_compilers.accepts_msvc(cuda, said.toolset)
        if verdict.accepted is False:
            yield _at(
                said, said.studio_line, "toolset-refused", State.FAIL, verdict.reason, _fitting(cuda), verdict.source
            )
        return
    if said.studio is None:
        return
    of_year = [row for row in host_compilers.toolsets() if row.visual_studio == said.studio]
    refused = [row for row in of_year if host_compilers.accepts_msvc(cuda, row.toolset).accepted is False]
    if of_year and len(refused) == len(of_year):
        yield _at(
            said,
            said.studio_line,
            "studio-refused",
            State.FAIL,
            f"CUDA {cuda} takes no toolset of Visual Studio {said.studio}",
            _fitting(cuda),
            of_year[0].source,
        )
    elif refused:
        yield _at(
            said,
            said.studio_line,
            "toolset-not-said",
            State.WARN,
            f"this loads the newest toolset of Visual Studio {said.studio}, and CUDA {cuda} does not take all of them",
            f"{_fitting(cuda)}. Say which: -vcvars_ver=14.xx",
            of_year[0].source,
        )


def _pairs(said: Said) -> Iterator[Remark]:
    asked = said.targets()
    for pair in script_rules().pair:
        if not _holds(pair, said):
            continue
        line = asked[0].line if pair.arch_from and asked else said.cuda_line
        yield _at(
            said,
            line,
            pair.id,
            State.FAIL if pair.fails else State.WARN,
            pair.found.format(cuda=said.cuda, torch=said.torch),
            pair.why,
            pair.source,
        )


def _holds(pair: Pair, said: Said) -> bool:
    if pair.system == "windows" and not said.windows:
        return False
    if pair.cuda_from and (said.cuda is None or said.cuda < pair.cuda_from):
        return False
    if pair.torch_to and (said.torch is None or said.torch.major_minor > pair.torch_to):
        return False
    asked = said.targets()
    return not pair.arch_from or bool(asked and any(target.capability >= pair.arch_from for target in asked[1]))


def _acceptance(said: Said, cuda: Version) -> bool | None:
    """Whether the flag is needless: True when every compiler that the script can mean is accepted."""
    if said.toolset is not None:
        return host_compilers.accepts_msvc(cuda, said.toolset).accepted
    rows = [row for row in host_compilers.toolsets() if row.visual_studio == (said.studio or "2022")]
    answers = {host_compilers.accepts_msvc(cuda, row.toolset).accepted for row in rows}
    return True if answers == {True} else False if False in answers else None


def _fitting(cuda: Version) -> str:
    span = host_compilers.toolset_range(cuda)
    return (
        f"CUDA {cuda} goes with the toolsets {span[0]} to {span[1]}"
        if span
        else f"which go with CUDA {cuda} is not known"
    )


def _known_toolkit(cuda: Version) -> toolkits.Toolkit | None:
    return next((row for row in toolkits.toolkits() if row.version == cuda.major_minor), None)


def _range(card: Capability) -> str:
    first, last = toolkits.first_toolkit_for(card), toolkits.last_toolkit_for(card)
    if first is None or last is None:
        return "no toolkit in the tables knows it"
    open_end = last is toolkits.toolkits()[-1]
    return f"CUDA {first.version} and newer do" if open_end else f"CUDA {first.version} to {last.version} do"


def _named(targets: tuple[Target, ...]) -> str:
    return ", ".join(str(target) for target in targets)


def _spelled(card: Capability, setting: Setting) -> str:
    return str(card) if setting.name.startswith("TORCH") else f"{card.major}{card.minor}"


def _builds(said: Said) -> bool:
    text = "\n".join(item.text for item in said.script.commands)
    return bool(re.search(r"setup\.py|-m build\b|pip wheel|\bcmake\b", text)) and not re.search(
        r"USE_CUDA=(?:0|OFF)", text
    )


def _line(said: Said, line: int) -> str:
    return said.script.lines[line - 1].strip() if 0 < line <= len(said.script.lines) else ""


def _at(
    said: Said,
    line: int | None,
    name: str,
    state: State,
    found: str,
    why: str,
    source: str,
    *,
    corrected: str | None = None,
) -> Remark:
    return Remark(
        id=name,
        state=state,
        line=line or 1,
        text=_line(said, line or 1),
        found=found,
        why=why,
        source=source,
        corrected=corrected,
    )


def _remark(
    said: Said,
    setting: Setting,
    name: str,
    state: State,
    found: str,
    why: str,
    source: str,
    old: str | None = None,
    new: str | None = None,
) -> Remark:
    line = _line(said, setting.line)
    corrected = line.replace(old, new, 1) if old and new and old in line else None
    return Remark(
        id=name, state=state, line=setting.line, text=line, found=found, why=why, source=source, corrected=corrected
    )
