"""Two hundred questions, put to the library and to the command line: the same JSON, or the same refusal."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import rekindle
from rekindle import RekindleError
from rekindle.api import _as_words
from rekindle.core import codec
from rekindle.core.errors import ErrorReport
from rekindle.knowledge.gpu import gpus
from rekindle.knowledge.gpu.capabilities import needs
from support import torch_like
from support.command import rekindle_command

pytestmark = pytest.mark.long

TESTS = Path(__file__).parents[1]
SEED = 20261115
# Under Wine each question takes ten times as long.
QUESTIONS = 40 if os.name == "nt" else 200


class Question(NamedTuple):
    words: tuple[str, ...]
    ask: Callable[[], object]


class Draw:
    """One question after the other: the words of the command line and the same as a call."""

    def __init__(self, folder: Path) -> None:
        self.chance = random.Random(SEED)
        self.names = sorted({gpu.name for gpu in gpus.gpus()})
        self.machines = sorted((TESTS / "machines").glob("*.json"))
        self.scripts = sorted(file for file in (TESTS / "data" / "review").rglob("*") if file.suffix in {".bat", ".sh"})
        self.logs = sorted((TESTS / "data" / "good-logs").rglob("*.log"))
        self.wheels = [
            torch_like.wheel(folder / f"wheels {number}", libraries={"torch/lib/libk.so": (targets,)})
            for number, targets in enumerate([("sm_61", "sm_75"), ("sm_35", "compute_35"), ("sm_90",)])
        ]
        self.logs += [self._log(folder / f"failed {number}.log", line) for number, line in enumerate(FAILED)]

    @staticmethod
    def _log(file: Path, line: str) -> Path:
        file.write_text(line + "\n", encoding="utf-8")
        return file

    def question(self) -> Question:
        kinds = (self._plan, self._gpu, self._inspect, self._diagnose, self._doctor, self._review)
        return self.chance.choices(kinds, weights=(10, 3, 2, 3, 1, 1))[0]()

    def _maybe(self, share: float) -> bool:
        return self.chance.random() < share

    def _plan(self) -> Question:
        if self._maybe(0.15):
            machine = self.chance.choice(self.machines)
            return Question(("plan", "--machine", str(machine), "--json"), lambda: rekindle.plan(machine=machine))
        words: list[str] = ["plan", "--json"]
        given: dict[str, Any] = {"gpus": self.chance.sample(self.names, self.chance.choice([1, 1, 1, 2]))}
        for name in given["gpus"]:
            words += ["--gpu", name]
        for option, values, share in OPTIONS:
            if self._maybe(share):
                value = self.chance.choice(values)
                words += [f"--{option}", value]
                given[option.replace("-", "_")] = [value] if option == "needs" else value
        return Question(tuple(words), lambda: rekindle.plan(**given))

    def _gpu(self) -> Question:
        name = self.chance.choice([*self.names, "sm_61", "10de:1b06", "RTX 9999", "GeForce"])
        return Question(("gpu", name, "--json"), lambda: rekindle.gpu(name))

    def _inspect(self) -> Question:
        wheel, name = self.chance.choice(self.wheels), self.chance.choice(self.names)
        wanted = self.chance.choice(["sm_61", "sm_90", "compute_35", "sm_no"])
        return Question(
            ("inspect", str(wheel), "--gpu", name, "--require", wanted, "--json"),
            lambda: rekindle.inspect(str(wheel), gpus=[name], require=[wanted]),
        )

    def _diagnose(self) -> Question:
        log, system = self.chance.choice(self.logs), self.chance.choice(["windows", "linux"])
        name, torch = self.chance.choice(self.names), self.chance.choice(["2.7.1", "2.0.1+cu118"])
        return Question(
            ("diagnose", str(log), "--gpu", name, "--os", system, "--torch", torch, "--json"),
            lambda: rekindle.diagnose(log, gpus=[name], os=system, torch=torch),
        )

    def _doctor(self) -> Question:
        machine = self.chance.choice(self.machines)
        return Question(("doctor", "--machine", str(machine), "--json"), lambda: rekindle.doctor(machine))

    def _review(self) -> Question:
        script, name = self.chance.choice(self.scripts), self.chance.choice(self.names)
        return Question(
            ("review", str(script), "--gpu", name, "--torch", "2.7.1", "--json"),
            lambda: rekindle.review([script], gpus=[name], torch="2.7.1"),
        )


FAILED = (
    "nvcc fatal   : Unsupported gpu architecture 'compute_35'",
    "RuntimeError: CUDA error: no kernel image is available for execution on the device",
    r"C:\Users\zoe\src\a.cu(3): error: identifier \"undefined\" is undefined",
    "c++: fatal error: Killed signal terminated program cc1plus",
    "ERROR: Could not find a version that satisfies the requirement torch==1.13.1 (from versions: 2.6.0)",
)
OPTIONS = (
    ("os", ["windows", "linux", "Ubuntu 22.04", "macos"], 0.9),
    ("python", ["3.9", "3.10", "3.12", "3.13", "3.99"], 0.5),
    ("driver", ["470.256.02", "535.183.01", "474.44", "580.65", "none"], 0.3),
    ("torch", ["2.7.1", "2.0.1", "1.13.1", ">=2.6", "2.6.0+cu118", "9.9"], 0.3),
    ("cuda", ["11.8", "12.6", "cu128", "99.9"], 0.15),
    ("arch", ["x86_64", "aarch64"], 0.15),
    ("needs", [each.id for each in needs()], 0.2),
    ("prefer", ["quickest", "complete"], 0.2),
    ("profile", ["compat", "minimal"], 0.1),
    ("torchvision", ["0.22.1"], 0.1),
    ("why-not", ["torch==2.7.1", "cuda==12.3", "python==3.13"], 0.15),
)


def _called(question: Question) -> Any:
    try:
        return json.loads(codec.to_json(question.ask()))
    except RekindleError as error:
        report = ErrorReport(code=error.exit_code, message=error.message, hint=error.hint)
        return json.loads(codec.to_json(report))


def test_two_hundred_questions_have_one_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    draw = Draw(tmp_path)
    different, refused = [], 0
    for _ in range(QUESTIONS):
        question = draw.question()
        printed, returned = json.loads(rekindle_command(*question.words).out), _called(question)
        if printed["schema"] == "rekindle.error/1":
            refused += 1
            # What is an option there is a word of the function here; nothing else differs.
            printed |= {name: _as_words(printed[name] or "") or None for name in ("message", "hint")}
        if printed != returned:
            different.append((question.words, _difference(printed, returned)))
    assert not different, f"{len(different)} of {QUESTIONS}: {different[:5]}"
    # Questions that nobody can answer are among them, but most are answered.
    assert 0 < refused < QUESTIONS // 2


def _difference(printed: dict[str, Any], returned: dict[str, Any]) -> list[str]:
    return [
        f"{name}: {str(printed.get(name))[:200]} / {str(returned.get(name))[:200]}"
        for name in sorted({*printed, *returned})
        if printed.get(name) != returned.get(name)
    ]
