"""Each pair of things that must fit, drawn by a seed and put to every verb that can express it.

What the judgement in `compat` refuses, every verb refuses, in the judgement's own sentence; what it lets pass, no verb
refuses for that reason.
"""

from __future__ import annotations

import itertools
import os
import random
import sys
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from rekindle.compat import companion, driver_card, host_compiler, package
from rekindle.compat.driver_cuda import runs
from rekindle.compat.feature_card import has
from rekindle.compat.judgement import Judgement, holds
from rekindle.compat.library_card import compiles_with, cudnn_serves
from rekindle.compat.toolkit_card import compiles
from rekindle.compat.torch_cuda import has_line
from rekindle.compat.torch_python import takes
from rekindle.compat.wheel_platform import built_for, goes_with, loads
from rekindle.core.findings import State
from rekindle.core.version import Version
from rekindle.diagnose.evidence import judged
from rekindle.diagnose.facts import facts_from_options
from rekindle.extension import question
from rekindle.extension.candidates import IndexAnswer
from rekindle.extension.find import LookedInto, find
from rekindle.inputs.driver import read_driver
from rekindle.inputs.system import read_system
from rekindle.inputs.versions import read_cuda
from rekindle.knowledge.gpu.capabilities import needs
from rekindle.knowledge.torch.torch_wheels import torch_wheels
from rekindle.model.card import Capability
from rekindle.model.host_compiler import gcc as gcc_of
from rekindle.model.platform import LINUX, Platform
from rekindle.stack import coverage
from rekindle.stack.driver import card_window
from rekindle.stack.offers import official_of
from rekindle.stack.prebuilt import coverage as covered
from rekindle.stack.situation import cards_named
from support.command import Seen, rekindle_command

pytestmark = pytest.mark.long

WHL = "https://download.pytorch.org/whl"
# Of what fits and of what clashes. Under Wine each question takes ten times as long.
EACH = 2 if os.name == "nt" else 10
CARDS = ("K40c", "K80", "GTX 980", "GTX 1080 Ti", "V100", "RTX 2080", "A100", "RTX 3060", "H200", "RTX 5070")
DRIVERS = ("390.87", "418.39", "470.256.02", "535.183.01", "560.35.03", "575.51.03", "580.65.06", "595.45.04")
CUDAS = ("10.2", "11.0", "11.4", "11.8", "12.1", "12.6", "12.8", "13.0", "13.2")
TORCHES = ("1.13.1", "2.0.1", "2.1.2", "2.4.1", "2.6.0", "2.7.1", "2.8.0", "2.9.1", "2.11.0")
LINES = ("cu117", "cu118", "cu121", "cu124", "cu126", "cu128", "cu130")
PYTHONS = ("3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
SYSTEMS = ("linux", "windows", "wsl2")


class Pair(NamedTuple):
    """A judgement, what it is asked about, and how each verb is asked: True where it refuses for this reason."""

    name: str
    things: Iterable[tuple[str, ...]]
    fits: Callable[..., bool | None]
    verbs: dict[str, Callable[..., bool | None]]


def capability(card: str) -> Capability:
    return cards_named([card])[0].capabilities[0]


def said(seen: Seen, *words: str) -> bool:
    assert seen.code != 1, seen.err
    text = " ".join(f"{seen.out} {seen.err}".split())
    return any(word in text for word in words)


def rejected(*words: str, rules: tuple[str, ...], cuda: str | None = None) -> bool:
    """By `plan`, of the machine, of a toolkit or of the official wheels."""
    seen = rekindle_command("plan", *words, "--json")
    assert seen.code in (0, 5), seen.err
    found = [each for each in seen.json()["rejections"] if each["rule"] in rules]
    if cuda is not None:
        return any(each["candidate"].get("cuda") == cuda for each in found)
    return any(each["candidate"].get("route") in (None, "official-wheel") for each in found)


def remarked(folder: Path, name: str, text: str, *words: str, ids: tuple[str, ...], about: str = "") -> bool:
    """By `review`."""
    file = folder / name
    file.write_text(text, encoding="utf-8")
    seen = rekindle_command("review", str(file), *words, "--json")
    assert seen.code in (0, 8, 9), seen.err
    (script,) = seen.json()["scripts"]
    return any(each["id"] in ids and about in f"{each['found']} {each['why']}" for each in script["remarks"])


def environment(folder: Path, torch: str, cuda: str, **others: str) -> Path:
    site = folder / "env" / "lib" / "python3.11" / "site-packages"
    (site / "torch").mkdir(parents=True)
    (folder / "env" / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.4\n", encoding="utf-8")
    text = f"__version__ = '{torch}'\ncuda: Optional[str] = '{cuda}'\n"
    (site / "torch" / "version.py").write_text(text, encoding="utf-8")
    for name, version in {"torch": torch, **others}.items():
        info = site / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n", encoding="utf-8")
        (info / "RECORD").write_text("", encoding="utf-8")
    return folder / "env"


def audited(folder: Path, *words: str, id: str, about: tuple[str, ...], **env: Any) -> bool:
    seen = rekindle_command("audit", str(environment(folder, **env)), *words, "--json")
    found = [each["found"] for each in seen.json()["findings"] if each["id"] == id]
    return any(word in each for each in found for word in about)


def no_wheel(name: str, torch: str, system: str, card: str) -> str:
    """Why `extension find` has none, without an index."""
    asked = question.of(name, question.TorchNamed(torch=torch, python="3.11", os=system), gpus=[card])
    nowhere, unread = IndexAnswer(place=None, reached=False), LookedInto(State.UNVERIFIED, "it was not read")
    return " ".join(find(asked, ask=lambda *_: nowhere, look=lambda *_: unread).refused)


def diagnosed(pair: str, told: dict[str, Any] | None = None, **said: Any) -> bool | None:
    """By `diagnose`, of what was said to it; None where it judges no such pair. `told` is what only a log says."""
    facts = msgspec.structs.replace(facts_from_options(**said), **(told or {}))
    found = {each.pair: each.verdict for each in judged(facts)}
    return found[pair] == "clash" if found.get(pair) in ("clash", "fits") else None


# --- a driver and a card, a driver and a CUDA ----------------------------------------------------------------------


def _drives(card: str, driver: str, system: str) -> bool | None:
    place = read_system(system)
    window = card_window(cards_named([card])[0], place.driver_system)
    return holds(driver_card.drives(read_driver(driver, place.driver_system).driver, card, window))


def _place(card: str, driver: str, system: str) -> tuple[str, ...]:
    return ("--gpu", card, "--driver", driver, "--os", system)


_NOT_DRIVEN = ("does not drive", "does not know")
DRIVER_CARD = Pair(
    "driver and card",
    itertools.product(CARDS, DRIVERS, SYSTEMS),
    _drives,
    {
        "plan": lambda folder, *each: rejected(
            *_place(*each), rules=("card-driver-too-new", "card-driver-too-old", "wsl-card")
        ),
        "list": lambda folder, *each: said(rekindle_command("plan", "--list", *_place(*each)), *_NOT_DRIVEN),
        "review": lambda folder, *each: remarked(
            folder, "requirements.txt", "torch\n", *_place(*each), ids=("driver-not-for-the-card",)
        ),
        "diagnose": lambda folder, card, driver, system: diagnosed(
            "driver and card", gpus=[card], driver=driver, system=system
        ),
        "audit": lambda folder, *each: audited(
            folder, *_place(*each), id="audit.driver", about=_NOT_DRIVEN, torch="2.6.0", cuda="12.4"
        ),
    },
)
DRIVER_CUDA = Pair(
    "driver and CUDA",
    # One that does not know the card is refused for that.
    [
        each
        for each in itertools.product(DRIVERS, ("cu118", "cu121", "cu124", "cu126", "cu128", "cu130"), SYSTEMS)
        if _drives("RTX 2080", each[0], each[2])
    ],
    lambda driver, line, system: holds(
        runs(read_driver(driver, read_system(system).driver_system).driver, read_cuda(line))
    ),
    {
        "plan": lambda folder, driver, line, system: rejected(
            *_place("RTX 2080", driver, system), "--torch", f"{_of(line)}+{line}", rules=("driver-too-old",)
        ),
        "why not": lambda folder, driver, line, system: said(
            rekindle_command("plan", *_place("RTX 2080", driver, system), "--why-not", f"{_of(line)}+{line}", "--all"),
            "does not run CUDA",
        ),
        "review": lambda folder, driver, line, system: remarked(
            folder, "requirements.txt", f"--index-url {WHL}/{line}\ntorch=={_of(line)}\n",
            *_place("RTX 2080", driver, system), ids=("wheel-not-for-the-card",), about="does not run CUDA",
        ),
        "diagnose": lambda folder, driver, line, system: diagnosed(
            "driver and CUDA of torch", driver=driver, system=system, torch=f"{_of(line)}+{line}"
        ),
        "audit": lambda folder, driver, line, system: audited(
            folder, *_place("RTX 2080", driver, system), id="audit.driver", about=("does not run CUDA",),
            torch=_of(line), cuda=str(read_cuda(line)),
        ),
    },
)  # fmt: skip


def _of(line: str) -> str:
    """A release that has this line."""
    return next(torch for torch in reversed(TORCHES) if holds(has_line(torch, line)))


# --- a toolkit, a cuDNN, the code of a wheel, and a card -----------------------------------------------------------

TOOLKIT_CARD = Pair(
    "toolkit and card",
    itertools.product(CUDAS, CARDS),
    lambda cuda, card: holds(compiles(Version(cuda), capability(card), card)),
    {
        "plan": lambda folder, cuda, card: rejected(
            "--gpu", card, "--os", "linux", "--cuda", cuda, rules=("toolkit-target",), cuda=cuda
        ),
        "review": lambda folder, cuda, card: remarked(
            folder, "build.sh", f"export PATH=/usr/local/cuda-{cuda}/bin:$PATH CUDA_HOME=/usr/local/cuda-{cuda}\n"
            "git clone --recursive https://github.com/pytorch/pytorch\ncd pytorch\npython setup.py bdist_wheel\n",
            "--gpu", card, ids=("toolkit-not-for-the-card",),
        ),
        "diagnose": lambda folder, cuda, card: diagnosed("toolkit and card", gpus=[card], cuda=cuda),
        "toolchain": lambda folder, cuda, card: said(
            rekindle_command("toolchain", "install", f"cuda=={cuda}", "--gpu", card, "--dry-run", "--offline",
                             "--platform", "linux-x86_64"), "cannot compile for"),
    },
)  # fmt: skip
CUDNN_CARD = Pair(
    "cuDNN and card",
    itertools.product(("8.2.4", "8.5.0", "8.7.0", "8.9.7", "9.1.0", "9.5.1", "9.10.2", "9.13.0"), CARDS),
    lambda cudnn, card: holds(cudnn_serves(Version(cudnn), capability(card), cuda_major=_major(cudnn))),
    {
        "diagnose": lambda folder, cudnn, card: coverage.cudnn_lacks(None, None, cudnn, capability(card)),
        "toolchain": lambda folder, cudnn, card: said(
            rekindle_command("toolchain", "install", f"cudnn=={cudnn}", "--cuda", f"{_major(cudnn)}.4", "--gpu", card,
                             "--dry-run", "--offline", "--platform", "linux-x86_64"), "has no code for"),
        "review": lambda folder, cudnn, card: remarked(
            folder, "requirements.txt", f"nvidia-cudnn-cu{_major(cudnn)}=={cudnn}.*\n",
            "--gpu", card, ids=("cudnn-not-for-the-card",),
        ),
    },
)  # fmt: skip
TORCH_CUDNN = Pair(
    "torch and cuDNN",
    itertools.product(("1.13.1", "2.0.1", "2.2.2", "2.3.1", "2.6.0", "2.15.0"),
                      ("7.6.5", "8.0.5", "8.5.0", "8.9.2", "9.1.0", "9.5.1")),
    lambda torch, cudnn: holds(compiles_with(torch, Version(cudnn))),
    {
        "review": lambda folder, torch, cudnn: remarked(
            folder, "build.sh", f"git clone --branch v{torch} --recursive https://github.com/pytorch/pytorch\n"
            f"cd pytorch\nexport CUDNN_ROOT=/opt/cudnn-linux-x86_64-{cudnn}.1_cuda11-archive\n"
            "python setup.py bdist_wheel\n",
            ids=("cudnn-too-new-for-torch",),
        ),
        "plan": lambda folder, torch, cudnn: False if _chosen_cudnn(torch) == cudnn else None,
    },
)  # fmt: skip


@cache
def _chosen_cudnn(torch: str) -> str | None:
    """What a build of it is planned with."""
    seen = rekindle_command("plan", "--gpu", "V100", "--torch", torch, "--json")
    found = [each["cudnn"] for each in seen.json()["routes"] if each["route"] == "source-build"]
    return ".".join(found[0].split(".")[:3]) if found and found[0] else None


def _major(cudnn: str) -> int:
    return 12 if cudnn.startswith("9.") else 11


_OPENED = sorted({(row.version.partition("+")[0], row.system) for row in torch_wheels() if row.cuda is not None})


def _lines_of(torch: str, system: str) -> list[Any]:
    return [offer for offer in official_of(torch, Platform(system, "x86_64")) if offer.evidence.confirmed]


_KNOWN = {"SERVES": True, "NO": False}
CODE_CARD = Pair(
    "wheel and card",
    [(*wheel, card) for wheel, card in itertools.product(_OPENED, CARDS)],
    lambda torch, system, card: _KNOWN.get(covered(_lines_of(torch, system)[0], capability(card)).value),
    {
        "plan": lambda folder, torch, system, card: rejected(
            "--gpu", card, "--os", system, "--torch", f"{torch}+{_lines_of(torch, system)[0].variant}",
            rules=("wheel-code", "wheel-code-partial", "toolkit-target"),
        ),
        "review": lambda folder, torch, system, card: remarked(
            folder, "requirements.txt", f"--index-url {WHL}/{_lines_of(torch, system)[0].variant}\ntorch=={torch}\n",
            "--gpu", card, "--os", system, ids=("wheel-not-for-the-card", "torch-no-cuda"),
        ),
        "diagnose": lambda folder, torch, system, card: coverage.torch_lacks(
            torch, _lines_of(torch, system)[0].variant, system, capability(card)
        ),
    },
)  # fmt: skip

# --- a torch and its line, its Python, its system, its companions ---------------------------------------------------

TORCH_LINE = Pair(
    "torch and line",
    itertools.product(TORCHES, LINES),
    lambda torch, line: holds(has_line(torch, line)),
    {
        "plan": lambda folder, torch, line: not any(
            each["route"] == "official-wheel" and each["variant"] == line
            for each in rekindle_command(
                "plan", "--gpu", "A100", "--os", "linux", "--torch", f"{torch}+{line}", "--json"
            ).json()["routes"]
        ),
        "review": lambda folder, torch, line: remarked(
            folder, "requirements.txt", f"--index-url {WHL}/{line}\ntorch=={torch}+{line}\n",
            "--os", "linux", ids=("torch-no-such-wheel",),
        ),
    },
)  # fmt: skip
TORCH_PYTHON = Pair(
    "torch and Python",
    itertools.product(TORCHES, PYTHONS, ("linux", "windows")),
    lambda torch, python, system: holds(takes(torch, python, system)),
    {
        "plan": lambda folder, torch, python, system: rejected(
            "--gpu", "V100", "--os", system, "--torch", torch, "--python", python, rules=("torch-python",)
        ),
        "review": lambda folder, torch, python, system: remarked(
            folder, "requirements.txt", f"torch=={torch}\n", "--python", python, "--os", system,
            ids=("python-not-supported",),
        ),
    },
)  # fmt: skip


def _glibc(torch: str, line: str, system: str) -> Judgement:
    offer = next(each for each in official_of(torch, LINUX) if each.variant == line)
    return loads(offer.label, offer.glibc, read_system(system).glibc)


TORCH_SYSTEM = Pair(
    "torch and glibc",
    [
        (torch, line, system)
        for torch, line, system in itertools.product(
            TORCHES, LINES, ("centos7", "ubuntu 18.04", "ubuntu 20.04", "ubuntu 24.04", "debian 10", "rocky 8")
        )
        if holds(has_line(torch, line)) and line != "cu130"
    ],
    lambda torch, line, system: holds(_glibc(torch, line, system)),
    {
        "plan": lambda folder, torch, line, system: rejected(
            "--gpu", "A100", "--os", system, "--torch", f"{torch}+{line}", rules=("wheel-glibc",)
        ),
        "review": lambda folder, torch, line, system: remarked(
            folder, "requirements.txt", f"--index-url {WHL}/{line}\ntorch=={torch}\n", "--gpu", "A100", "--os", system,
            ids=("wheel-not-for-the-card",), about="needs glibc",
        ),
        "extension": lambda folder, torch, line, system: "needs glibc" in no_wheel(
            "nunchaku", f"{torch}+{line}", system, "A100"
        ),
    },
)  # fmt: skip
COMPANION = Pair(
    "torch and torchvision",
    itertools.product(TORCHES, ("0.14.1", "0.15.2", "0.16.2", "0.19.1", "0.21.0", "0.22.1", "0.23.0", "0.24.1")),
    lambda torch, vision: holds(companion.belongs("torchvision", vision, torch)),
    {
        "plan": lambda folder, torch, vision: said(
            rekindle_command("plan", "--gpu", "A100", "--os", "linux", "--torch", torch, "--torchvision", vision),
            "does not belong to torch",
        ),
        "review": lambda folder, torch, vision: remarked(
            folder, "requirements.txt", f"torch=={torch}\ntorchvision=={vision}\n",
            ids=("companion", "package-other-torch", "requirement-conflict"),
        ),
        "diagnose": lambda folder, torch, vision: diagnosed(
            "torch and torchvision", {"torchvision": vision}, torch=torch
        ),
        "audit": lambda folder, torch, vision: audited(
            folder, "--gpu", "A100", id="audit.companions", about=("torchvision",), torch=torch, cuda="12.1",
            torchvision=vision,
        ),
    },
)  # fmt: skip

# --- a package, a feature, a compiler ------------------------------------------------------------------------------

PACKAGE_CARD = Pair(
    "package and card",
    itertools.product(("flash-attn", "xformers", "bitsandbytes", "sageattention", "vllm", "nunchaku"), CARDS),
    lambda name, card: holds(package.runs_on(name, None, capability(card))),
    {
        "review": lambda folder, name, card: remarked(
            folder, "requirements.txt", f"torch==2.6.0\n{name}\n", "--gpu", card, ids=("kernels-not-for-the-card",)
        ),
        "extension": lambda folder, name, card: _sentence(
            package.runs_on(name, None, capability(card))
        ) in no_wheel(name, "2.6.0+cu124", "linux", card),
        "diagnose": lambda folder, name, card: coverage.package_lacks(name, capability(card)),
    },
)  # fmt: skip
PACKAGE_TORCH = Pair(
    "package and torch",
    itertools.product(
        ("xformers==0.0.20", "xformers==0.0.23.post1", "xformers==0.0.27.post2", "xformers==0.0.29.post3",
         "xformers==0.0.31", "xformers==0.0.33", "torchaudio==2.0.2", "torchaudio==2.4.1", "torchaudio==2.8.0"),
        TORCHES,
    ),
    lambda which, torch: holds(package.goes_with(which.partition("==")[0], which.partition("==")[2], torch)),
    {
        "review": lambda folder, which, torch: remarked(
            folder, "build.sh", f"pip install torch=={torch}\npip install --no-deps {which}\n",
            ids=("companion", "package-other-torch", "requirement-conflict", "torch-replaced"),
        ),
    },
)  # fmt: skip


def _sentence(answer: Judgement) -> str:
    return getattr(answer, "sentence", "no build of it has code for")


FEATURE_CARD = Pair(
    "feature and card",
    itertools.product([each.id for each in needs()], CARDS),
    lambda need, card: has(need, capability(card)),
    {
        "plan": lambda folder, need, card: rejected(
            "--gpu", card, "--os", "linux", "--needs", need, rules=("card-need",)
        ),
    },
)
GCC = Pair(
    "toolkit and GCC",
    itertools.product(CUDAS, ("7", "9", "10", "11", "12", "13", "14")),
    lambda cuda, gcc: holds(host_compiler.takes_compiler(Version(cuda), gcc_of(int(gcc)))),
    {
        "review": lambda folder, cuda, gcc: remarked(
            folder, "build.sh", f"export PATH=/usr/local/cuda-{cuda}/bin:$PATH CUDA_HOME=/usr/local/cuda-{cuda}\n"
            f"export CC=gcc-{gcc} CXX=g++-{gcc} CUDAHOSTCXX=g++-{gcc}\ncd pytorch\npython setup.py bdist_wheel\n",
            ids=("gcc-refused",),
        ),
        "diagnose": lambda folder, cuda, gcc: diagnosed("toolkit and GCC", {"gcc": gcc}, cuda=cuda),
    },
)  # fmt: skip
FILES = [
    f"flash_attn-2.8.3+cu12torch{torch}cxx11abi{abi}-cp{python}-cp{python}-linux_x86_64.whl"
    for torch, abi, python in itertools.product(("2.4", "2.6", "2.8"), ("TRUE", "FALSE"), ("311", "312"))
]
FILE_TORCH = Pair(
    "file and torch",
    itertools.product(FILES, ("2.4.1+cu124", "2.6.0+cu124", "2.6.0+cu126", "2.8.0+cu128"), ("3.11", "3.12")),
    lambda file, torch, python: holds(
        goes_with(built_for(file), torch=torch[:5], line=torch[6:], python=python, system="linux")
    ),
    {
        "review": lambda folder, file, torch, python: remarked(
            folder, "build.sh", f"pip install torch=={torch[:5]} --index-url {WHL}/{torch[6:]}\n"
            f"pip install https://github.com/x/y/releases/download/v1/{file.replace('+', '%2B')}\n",
            "--python", python, "--os", "linux", ids=("package-other-torch",),
        ),
    },
)  # fmt: skip

EVERY = (
    DRIVER_CARD, DRIVER_CUDA, TOOLKIT_CARD, CUDNN_CARD, TORCH_CUDNN, CODE_CARD, TORCH_LINE, TORCH_PYTHON, TORCH_SYSTEM,
    COMPANION, PACKAGE_CARD, PACKAGE_TORCH, FEATURE_CARD, GCC, FILE_TORCH,
)  # fmt: skip


# Before plan says that there is no such wheel it says why none can be built.
OTHER_WORDS = {("torch and line", "plan")}


def _without_its_name(text: str, things: tuple[str, ...]) -> str:
    """A card is called as it was typed, by its whole name, or by its number: the rest of the sentence is one."""
    for card in (cards_named([each])[0] for each in things if each in CARDS):
        number = card.capabilities[0]
        every = {*things, card.name, f"{card.name} ({number})", f"{card.name} ({number.sm})", number.sm}
        for each in sorted(every & {*CARDS} | every - {*things}, key=len, reverse=True):
            text = text.replace(each, "CARD")
    return " ".join(text.split())


@pytest.mark.parametrize("pair", EVERY, ids=[each.name.replace(" ", "-") for each in EVERY])
def test_every_verb_says_what_the_judgement_says(pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    answers: list[Judgement] = []
    printed: list[str] = []

    really, command = holds, rekindle_command

    def noted(answer: Judgement) -> bool | None:
        answers.append(answer)
        return really(answer)

    def heard(*words: str) -> Seen:
        seen = command(*words)
        printed.append(f"{seen.out} {seen.err}".replace('\\"', '"'))
        return seen

    here = sys.modules[__name__]
    wrong = []
    kinds: dict[bool, list[tuple[str, ...]]] = {True: [], False: []}
    for things in pair.things:
        if (fits := pair.fits(*things)) is not None:
            kinds[fits].append(things)
    choice = random.Random(pair.name)
    drawn = [(things, fits) for fits, every in kinds.items() for things in choice.sample(every, min(EACH, len(every)))]
    assert {fits for _, fits in drawn} == {True, False}
    for number, (things, fits) in enumerate(drawn):
        answers.clear()
        with monkeypatch.context() as patch:
            patch.setattr(here, "holds", noted)
            pair.fits(*things)
        sentence = _without_its_name(getattr(answers[-1], "sentence", "") if answers else "", things)
        for verb, ask in pair.verbs.items():
            folder = tmp_path / f"{number} {verb}"
            folder.mkdir()
            printed.clear()
            with monkeypatch.context() as patch:
                patch.setattr(here, "rekindle_command", heard)
                refuses = ask(folder, *things)
            text = _without_its_name(" ".join(printed), things)
            if refuses is not None and refuses is fits:
                wrong.append(f"{verb}: {' '.join(map(str, things))} {'is refused' if refuses else 'passes'}")
            elif refuses and text and sentence not in text and (pair.name, verb) not in OTHER_WORDS:
                wrong.append(f"{verb}: {' '.join(map(str, things))} is refused in other words than `{sentence}`")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("begin", "what"),
    [
        (b"PK\x03\x04\x14\0", "a wheel or another zip archive"),
        (b"7z\xbc\xaf\x27\x1c\0\4", "a 7-Zip archive"),
        (b"Rar!\x1a\x07\x01\0", "a RAR archive"),
        (b"BZh91AY&SY\x80\0", "a bzip2 archive"),
        (b"\xfd7zXZ\0", "an xz archive"),
        (b"\x28\xb5\x2f\xfd\x24\0", "a zstd archive"),
        (b"\x04\x22\x4d\x18\0", "an LZ4 archive"),
        (b"!<arch>\ndebian-binary   ", "a Debian package"),
        (b"\xed\xab\xee\xdb\3\0", "an RPM package"),
        (b"MSCF\0\0", "a cabinet archive"),
    ],
)
def test_every_verb_says_what_a_file_is(begin: bytes, what: str, tmp_path: Path) -> None:
    """One sentence for an archive that a verb does not read: what it is, and what the verb reads."""
    path = tmp_path / "given.bin"
    path.write_bytes(begin + bytes(200))
    verbs = {
        "verify": "a Python environment", "audit": "a Python environment", "diagnose": "a log",
        "review": "a text file", "repair": "a wheel",
    }  # fmt: skip
    if not begin.startswith(b"PK"):
        verbs["inspect"] = "a wheel, a library"
    for verb, wanted in verbs.items():
        answer = rekindle_command(verb, str(path))
        assert answer.code in (2, 4, 14), verb
        assert f"given.bin` is {what}, not {wanted}" in " ".join(answer.err.split()), verb
