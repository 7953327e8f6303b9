"""What a log says about the machine it was written on, and what the caller knows besides.

Look-alike messages are split by such facts ("only supports Ampere" on a newer card is another cause than on an older
one), and fixes are written for them. A fact nobody told is None.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import msgspec
import re2

from rekindle.knowledge.gpu.capability import Capability
from rekindle.knowledge.gpu.gpus import capabilities_of
from rekindle.machine.model import Machine


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """`os` is `windows` or `linux`; versions are spelled as the log spells them."""

    os: str | None = None
    gpus: tuple[Capability, ...] = ()
    torch: str | None = None
    cuda: str | None = None
    python: str | None = None
    toolset: str | None = None
    bits: int | None = None
    developer_prompt: bool | None = None
    msvc: bool | None = None
    gpu_name: str | None = None
    driver: str | None = None
    jobs: int | None = None


_LONGEST = 4_000
_WINDOWS = (
    r"\b[A-Za-z]:\\|\bWinError\b|\.dll\b|win_amd64|win-amd64|\.vcxproj|\bLNK\d{4}\b|\bfatal error C1\d{3}\b|\bcl\.exe\b"
    r"|\bMSVC\b|Visual Studio|\bPS [A-Z]:"
)
_LINUX = (
    r"(?:^|[\s\"'(:])/(?:usr|home|opt|tmp|root|lib64|lib|mnt|proc)/|\.so(?:\.\d+)*\b|linux-gnu|manylinux"
    r"|\bapt(?:-get)?\b"
)
_SEEN: tuple[tuple[str, str], ...] = (
    ("torch", r"\btorch[ =-]=?=?(\d+\.\d+\.\d+)"),
    ("torch", r"PyTorch (\d+\.\d+\.\d+)"),
    ("cuda", r"[Cc]uda compilation tools, release (\d+\.\d+)"),
    ("cuda", r"CUDA[/\\]v(\d+\.\d+)"),
    ("cuda", r"/cuda-(\d+\.\d+)"),
    ("cuda", r"CUDA detected: (\d+\.\d+)"),
    ("cuda", r"Found CUDAToolkit: .*found version \"(\d+\.\d+)"),
    ("python", r"(?:^|\b)Python[ /](\d+\.\d+)(?:\.\d+)?\b"),
    ("python", r"\bcpython-3(\d{1,2})\b"),
    ("python", r"\bcp3(\d{1,2})-(?:cp3|abi3)"),
    ("python", r"python(3\.\d{1,2})/(?:site|dist)-packages"),
    ("toolset", r"[/\\]MSVC[/\\](14\.\d\d)\.\d+"),
    ("bits", r"\[MSC v\.\d+ (32|64) bit"),
    ("gpu_name", r"(NVIDIA (?:GeForce|Tesla|Quadro|RTX|GTX|TITAN|A\d+|H\d+|T\d+)[\w -]{0,30}?) with CUDA capability"),
)
_CARD = r"with CUDA capability sm_(\d{2,3})|compute capability(?: among GPUs detected)?:? (\d{1,2}\.\d)"
_PROMPT = r"VCINSTALLDIR|Developer (?:Command Prompt|PowerShell)|Native Tools Command Prompt|vcvars\w*\.bat"


def told(
    *,
    gpus: Sequence[str] = (),
    system: str | None = None,
    torch: str | None = None,
    cuda: str | None = None,
    toolset: str | None = None,
    python: str | None = None,
    driver: str | None = None,
) -> Facts:
    """What the caller knows, as the command line spells it."""
    return Facts(
        gpus=capabilities_of(gpus),
        os=system,
        torch=torch,
        cuda=cuda,
        toolset=toolset,
        python=python,
        driver=driver,
    )


def of_machine(machine: Machine, said: Facts) -> Facts:
    """What a recorded machine tells; what was said on the command line wins."""
    toolkit = next((found.version for found in machine.toolkits if found.version), None)
    prompt = machine.prompt
    found = Facts(
        os=machine.os,
        gpus=machine.capabilities,
        cuda=str(toolkit.major_minor) if toolkit else None,
        torch=machine.torch.version.partition("+")[0] if machine.torch else None,
        toolset=str(prompt.toolset.major_minor) if prompt.toolset else None,
        msvc=bool(machine.toolsets) if machine.os == "windows" else None,
        developer_prompt=bool(prompt.toolset or prompt.cl) if machine.os == "windows" else None,
    )
    return _over(found, said)


def gather(texts: Iterable[str], known: Facts | None = None) -> Facts:
    """`known` wins over what the log says."""
    found: dict[str, object] = {}
    windows = linux = 0
    cards: list[Capability] = []
    for text in texts:
        for name, pattern in _in(text):
            windows += name == "windows"
            linux += name == "linux"
            match = None if name in found or name in ("windows", "linux") else pattern.search(text)
            if match and name == "card":
                cards.append(Capability.parse(match.group(1) or match.group(2)))
            elif match and name == "developer_prompt":
                found[name] = True
            elif match:
                value = match.group(1)
                found[name] = f"3.{value}" if name == "python" and "." not in value else value
    if windows or linux:
        found["os"] = "windows" if windows >= linux else "linux"
    if "bits" in found:
        found["bits"] = int(str(found["bits"]))
    facts = Facts(gpus=tuple(dict.fromkeys(cards)), **found)  # type: ignore[arg-type]
    return facts if known is None else _over(facts, known)


def _over(facts: Facts, known: Facts) -> Facts:
    told = {name: value for name in Facts.__struct_fields__ if (value := getattr(known, name)) not in (None, ())}
    return msgspec.structs.replace(facts, **told)


def _in(text: str) -> list[tuple[str, re2._Regexp]]:
    """Which of the patterns are in a line: one pass for all of them."""
    patterns, entries = _patterns()
    return [entries[index] for index in sorted(patterns.Match(text[:_LONGEST]) or ())]


@lru_cache(maxsize=1)
def _patterns() -> tuple[re2.Set, tuple[tuple[str, re2._Regexp], ...]]:
    named = (("windows", _WINDOWS), ("linux", _LINUX), ("card", _CARD), ("developer_prompt", _PROMPT), *_SEEN)
    every = re2.Set.SearchSet(re2.Options())
    for _, pattern in named:
        every.Add(pattern)
    every.Compile()
    return every, tuple((name, re2.compile(pattern)) for name, pattern in named)
