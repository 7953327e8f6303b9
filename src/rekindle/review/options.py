"""Build options and flags: do they exist in this release, do they do anything here, do they contradict each other?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rekindle.core.findings import State
from rekindle.core.version import Version
from rekindle.knowledge.builds.script_rules import script_rules
from rekindle.knowledge.torch import options as known
from rekindle.review.remark import Remark
from rekindle.review.said import Said, Setting

_OFF = frozenset({"0", "OFF", "FALSE", "NO", "N"})
_ON = frozenset({"1", "ON", "TRUE", "YES", "Y"})
_OURS = re.compile(r"^(?:USE|BUILD|CAFFE2|TORCH|PYTORCH|CUDA|CUDNN|CMAKE|NCCL|MKL|BLAS|ATEN)_?\w*$")


def check(said: Said) -> Iterator[Remark]:
    for setting in said.settings:
        yield from _option(said, setting)
    yield from _twice(said)
    yield from _contradictions(said)
    yield from _flags(said)


def _option(said: Said, setting: Setting) -> Iterator[Remark]:
    if not _OURS.match(setting.name) or not setting.value:
        return
    verdict = known.verdicts().get(setting.name)
    if verdict and not (setting.name == "CUDA_TOOLKIT_ROOT_DIR" and setting.how == "cmake"):
        if verdict.verdict in ("never-existed", "no-effect"):
            what = "was never an option of PyTorch" if verdict.verdict == "never-existed" else "does nothing here"
            instead = f". Instead: {verdict.instead}" if verdict.instead else ""
            yield _remark(
                said,
                setting,
                f"option-{verdict.verdict}",
                State.WARN,
                f"{setting.name} {what}",
                verdict.detail + instead,
                verdict.source,
                "",
            )
            return
        if verdict.verdict == "limited" and not _within(said.torch, verdict.first, verdict.last):
            span = f"{verdict.first} to {verdict.last}" if verdict.last else f"{verdict.first} and later"
            unknown = said.torch is None
            yield _remark(
                said,
                setting,
                "option-limited",
                State.PASS if unknown else State.WARN,
                f"{setting.name} exists in torch {span} only" + ("" if unknown else f", not in {said.torch}"),
                verdict.detail,
                verdict.source,
                None if unknown else "",
            )
            return
    yield from _in_release(said, setting)


def _in_release(said: Said, setting: Setting) -> Iterator[Remark]:
    option = known.options().get(setting.name)
    if option is None:
        if re.match(r"(?:USE|BUILD)_\w+$", setting.name) and setting.name not in known.verdicts():
            near = known.nearest(setting.name, str(said.torch or "2.7"))
            hint = f"; near names: {', '.join(near)}" if near else ""
            yield _remark(
                said,
                setting,
                "option-unknown",
                State.WARN,
                f"{setting.name} is no option of any PyTorch release in the tables",
                f"nothing reads it{hint}",
                "build files of pytorch/pytorch, 1.10 to 2.15",
                None,
            )
        return
    if said.torch is not None and option.at(said.torch) is None:
        spans = ", ".join(f"{run.first} to {run.last}" for run in option.ranges)
        yield _remark(
            said,
            setting,
            "option-not-in-release",
            State.WARN,
            f"{setting.name} does not exist in torch {said.torch} (only in {spans})",
            "nothing reads it there",
            option.source,
            "",
        )
        return
    run = option.at(said.torch) if said.torch else option.ranges[-1]
    default = run.default if run and (said.torch or len({item.default for item in option.ranges}) == 1) else None
    if (
        default
        and run
        and not run.condition
        and _truth(default) is not None
        and _truth(default) == _truth(setting.value)
    ):
        yield _remark(
            said,
            setting,
            "option-default",
            State.PASS,
            f"{setting.name}={setting.value} is the default",
            "saying it changes nothing",
            option.source,
            None,
        )


def _twice(said: Said) -> Iterator[Remark]:
    seen: dict[tuple[str, str], Setting] = {}
    for setting in said.settings:
        earlier = seen.get((setting.how, setting.name))
        if earlier and earlier.value != setting.value and setting.how == "cmake":
            yield _remark(
                said,
                setting,
                "option-twice",
                State.WARN,
                f"{setting.name} is {earlier.value} on line {earlier.line} and {setting.value} here",
                "the last one counts",
                "CMake: -D entries are taken in order",
                None,
            )
        seen[setting.how, setting.name] = setting


def _contradictions(said: Said) -> Iterator[Remark]:
    """What is switched on below something that is switched off, and what is switched off twice."""
    for parent, children in {
        "USE_CUDA": (
            "USE_CUDNN",
            "USE_NCCL",
            "USE_CUSPARSELT",
            "USE_FLASH_ATTENTION",
            "USE_MEM_EFF_ATTENTION",
            "USE_CUFILE",
        ),
        "USE_DISTRIBUTED": ("USE_NCCL", "USE_GLOO", "USE_MPI", "USE_TENSORPIPE", "USE_LIBUV", "USE_UCC"),
    }.items():
        above = said.setting(parent)
        if above is None or _truth(above.value) is not False:
            continue
        for child in children:
            below = said.setting(child)
            if below is None:
                continue
            if _truth(below.value):
                yield _remark(
                    said,
                    below,
                    "option-contradiction",
                    State.WARN,
                    f"{child} is on, and {parent} on line {above.line} is off",
                    f"{child} is only looked at when {parent} is on",
                    "cmake/Dependencies.cmake",
                    None,
                )
            else:
                yield _remark(
                    said,
                    below,
                    "option-redundant",
                    State.PASS,
                    f"{child} is off already, because {parent} is",
                    "saying it changes nothing",
                    "cmake/Dependencies.cmake",
                    None,
                )


def _flags(said: Said) -> Iterator[Remark]:
    for setting in said.settings:
        if re.search(r"(?:^|\s)[/-]MP\d*\b", setting.value) and said.ninja:
            left = re.sub(r"(?:^|\s)[/-]MP\d*\b", "", setting.value).strip()
            yield _remark(
                said,
                setting,
                "flag-mp-with-ninja",
                State.WARN,
                "/MP does nothing with Ninja",
                "Ninja starts one compiler per file; /MP is for several files in one start",
                "Microsoft C++ compiler reference, /MP",
                None,
            )
            if not left:
                continue
        if setting.how == "cmake" and setting.name in ("CMAKE_CXX_FLAGS", "CMAKE_C_FLAGS") and said.windows:
            yield _remark(
                said,
                setting,
                "flags-replaced",
                State.WARN,
                f"setting {setting.name} replaces CMake's own MSVC defaults (/DWIN32 /D_WINDOWS /EHsc)",
                f"add to them instead: the environment variable {'CXXFLAGS' if 'CXX' in setting.name else 'CFLAGS'}",
                "CMake Modules/Platform/Windows-MSVC.cmake",
                None,
            )
        for switch in script_rules().switch:
            for value in re.findall(rf"{re.escape(switch.name)}:([\w.]+)", setting.value):
                if value.upper() not in {item.upper() for item in switch.values}:
                    yield _remark(
                        said,
                        setting,
                        "switch-unknown",
                        State.WARN,
                        f"{switch.name}:{value} is no switch of MSVC's",
                        switch.why,
                        switch.source,
                        None,
                    )
    for renamed in script_rules().renamed:
        for name, good in ((renamed.old, renamed.new), (renamed.new, renamed.old)):
            item = said.setting(name)
            if item is None or said.torch is None or item.how != "cmake":
                continue
            wrong = said.torch >= renamed.new_from if name == renamed.old else said.torch <= renamed.old_until
            if wrong:
                yield _remark(
                    said,
                    item,
                    "option-renamed",
                    State.WARN,
                    f"torch {said.torch} reads {good}, not {name}",
                    "CMake picks a Python by itself then",
                    renamed.source,
                    _line(said, item.line).replace(name, good, 1),
                )


def _within(torch: Version | None, first: str | None, last: str | None) -> bool:
    if torch is None:
        return False
    minor = torch.major_minor
    return not (first and minor < Version(first)) and not (last and minor > Version(last))


def _truth(value: str) -> bool | None:
    upper = value.strip().strip('"').upper()
    return True if upper in _ON else False if upper in _OFF else None


def _line(said: Said, line: int) -> str:
    return said.script.lines[line - 1].strip() if 0 < line <= len(said.script.lines) else ""


def _remark(
    said: Said, setting: Setting, name: str, state: State, found: str, why: str, source: str, corrected: str | None
) -> Remark:
    line = _line(said, setting.line)
    if corrected == "" and setting.how == "cmake":
        # Only a line that holds nothing else may go; within a longer line just the option does.
        alone = re.fullmatch(r"-D\w+(?::\w+)?=(?:\"[^\"]*\"|\S*)\s*[\^\\`]?", line)
        corrected = "" if alone else re.sub(rf"\s*-D{setting.name}(?::\w+)?=(?:\"[^\"]*\"|\S+)", "", line, count=1)
    return Remark(
        id=name, state=state, line=setting.line, text=line, found=found, why=why, source=source, corrected=corrected
    )
