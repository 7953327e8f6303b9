"""Answers as people get them, by a seed: what was typed, what was shown, and the commands in it."""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from rekindle.core import codec
from rekindle.core.command import Command, Shell, ShellVariable, Word
from support.command import rekindle_command
from support.questions import questions

TESTS = Path(__file__).parents[1]
_SYSTEMS = ("windows", "linux")
MACHINES = sorted((TESTS / "machines").glob("*.json"))


class Answer(NamedTuple):
    typed: tuple[str, ...]
    text: str
    commands: tuple[Command, ...]
    """Those that stand in the text."""


def answers(count: int, folder: Path, patch: pytest.MonkeyPatch) -> Iterator[Answer]:
    """So many that show a command, of every verb that prints some, for both systems and the three shells.

    `folder` is for what is read.
    """
    made: list[Command] = []
    _record(made, patch)
    chance = random.Random(29)
    kinds = [_questions(), _cards(), _machines(), _logs(folder), _files(folder)]
    for kind in kinds:
        chance.shuffle(kind)
    lines = (line for turn in itertools.zip_longest(*kinds) for line in turn if line is not None)
    found = (_answer((*line, *_shell(chance)), made) for line in lines)
    yield from itertools.islice((each for each in found if each.commands), count)


def _answer(typed: tuple[str, ...], made: list[Command]) -> Answer:
    made.clear()
    seen = rekindle_command(*typed)
    text = seen.out + seen.err
    return Answer(typed, text, tuple(each for each in made if str(each) in text))


class Call(NamedTuple):
    """What is carried out, with `<NAME>` where a variable was filled in."""

    words: list[str]
    environment: dict[str, str]
    folder: str | None


def shells_of(command: Command) -> tuple[Shell, ...]:
    """Those that may be given it."""
    if command.shell is not None:
        return (command.shell,)
    return (Shell.SH,) if command.system == "linux" else tuple(Shell)


def distinct(shown: list[Answer], shell: Shell) -> list[Command]:
    """Each command that the shell may be given, once."""
    found = [each for answer in shown for each in answer.commands if not each.told and shell in shells_of(each)]
    return list({(each.words, str(each.environment), each.folder, each.note): each for each in found}.values())


def meant(command: Command, known: Mapping[str, str] = MappingProxyType({})) -> Call:
    def filled(word: Word) -> str:
        pieces = word if isinstance(word, tuple) else (word,)
        return "".join(known.get(e.name, f"<{e.name}>") if isinstance(e, ShellVariable) else e for e in pieces)

    environment = {name: "" if value is None else filled(value) for name, value in command.environment.items()}
    return Call(list(map(filled, command.words)), environment, command.folder)


def variables_of(command: Command) -> set[str]:
    words = (*command.words, *command.environment.values())
    return {
        each.name
        for word in words
        for each in (word if isinstance(word, tuple) else (word,))
        if isinstance(each, ShellVariable)
    }


def printing(command: Command, printer: Path, folder: str) -> Command:
    """The same with a program that prints what it is given: its own name, its words, its environment, its folder."""
    return Command(
        sys.executable, str(printer), *command.words, environment=command.environment, note=command.note,
        folder=folder if command.folder else None,
    )  # fmt: skip


PRINTER = """import json, os, sys
print(json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]))
"""


def _shell(chance: random.Random) -> tuple[str, ...]:
    return ("--shell", chance.choice(list(Shell)).value) if chance.random() < 0.75 else ()


def _questions() -> list[tuple[str, ...]]:
    return [(each.get("verb", "plan"), *each["args"]) for each in questions() if "extra" not in each]


def _cards() -> list[tuple[str, ...]]:
    cards = ("Tesla K40c", "GTX 1080 Ti", "RTX 5070", "sm_61", "GTX 750 Ti", "Tesla V100", "GTX 980", "RTX 3060")
    verbs: list[tuple[str, ...]] = [
        ("gpu",),
        ("install", "--dry-run", "--gpu"),
        ("install", "--dry-run", "--installer", "uv", "--gpu"),
        *(("plan", "--os", system, *more, "--gpu") for system in _SYSTEMS for more in _PLANS),
    ]
    return [(*verb, card) for verb in verbs for card in cards]


_PLANS: tuple[tuple[str, ...], ...] = (
    *(("--as", form) for form in ("pip", "dockerfile")),
    ("--prefer", "complete"),
    ("--why-not", "2.9"),
    ("--for", "comfyui"),
)


def _machines() -> list[tuple[str, ...]]:
    verbs: list[tuple[str, ...]] = [("doctor",), ("doctor", "--all"), ("plan",), ("plan", "--prefer", "complete")]
    return [(*verb, "--machine", str(machine)) for verb in verbs for machine in MACHINES]


def _logs(folder: Path) -> list[tuple[str, ...]]:
    cases: list[dict[str, Any]] = []
    for file in sorted((TESTS / "data" / "blind").glob("*.toml")):
        cases += codec.from_toml(file.read_bytes(), dict[str, Any]).get("case", [])
    lines: list[tuple[str, ...]] = []
    for at, case in enumerate(each for each in cases if "log" in each):
        log = folder / f"{at}.log"
        log.write_text(case["log"], encoding="utf-8")
        lines.append(("diagnose", str(log), "--all", *((), ("--os", "windows"), ("--gpu", "Tesla K40c"))[at % 3]))
    return lines


def _files(folder: Path) -> list[tuple[str, ...]]:
    """What is read or written, in a folder with signs that a shell minds."""
    odd = folder / "a folder (of mine) & yours"
    odd.mkdir()
    plan = TESTS / "data" / "from-0.2" / "plan-source.toml"
    return [
        *(("plan", "--gpu", "Tesla K40c", "--os", system, "-o", str(odd / "a plan.toml")) for system in _SYSTEMS),
        *(("build", str(plan), "--dry-run", "--machine", str(machine)) for machine in MACHINES),
        *(("toolchain", "msvc", toolset) for toolset in ("14.29", "14.39")),
        ("factory", "init", str(odd), "--accept-licence", "--rekindle", "git+https://host.org/me/rekindle"),
        ("shelf", "list", "--shelf", str(odd)),
        ("toolchain", "list"),
    ]


def _record(made: list[Command], patch: pytest.MonkeyPatch) -> None:
    usual, parse = Command.__new__, Command.parse

    def new(cls: type[Command], *words: Any, **more: Any) -> Command:
        made.append(usual(cls, *words, **more))
        return made[-1]

    def parsed(text: str) -> Command:
        made.append(parse(text))
        return made[-1]

    patch.setattr(Command, "__new__", new)
    patch.setattr(Command, "parse", parsed)
