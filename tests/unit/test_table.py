"""The file for installers, and its two readers, against what `plan` answers."""

from __future__ import annotations

import ctypes
import importlib.util
import itertools
import json
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rekindle.core import codec
from rekindle.stack.from_machine import situation_here
from rekindle.stack.resolver import resolve
from rekindle.stack.situation import SYSTEMS, Wish
from rekindle.web import answers, site
from rekindle.web.site import InstallerTable, answered, installer_table
from rekindle.web.site import table_types as types
from support.artefacts import unverified
from support.command import rekindle_command, validator

READERS = Path(__file__).parents[2] / "examples/table"
SEED = 20261116
CARDS = ("Tesla K80", "GeForce GTX 1080 Ti", "GeForce GT 710")

Question = tuple[str, str, str, str]


PYTHONS = ("", "3.9", "3.12", "3.14")


@pytest.fixture(scope="module")
def table() -> dict[str, Any]:
    """As an installer reads it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answers, "pythons", lambda: PYTHONS)
        found: dict[str, Any] = json.loads(codec.to_json(installer_table(answered(only=CARDS)), indent=0))
    return found


@pytest.fixture(scope="module")
def questions(table: dict[str, Any]) -> dict[Question, dict[str, Any]]:
    """500 questions, with the recommended route of `plan` to each."""
    draw = random.Random(SEED)
    names = [name for each in answers.classes() if set(CARDS) & set(each.names) for name in each.names]
    assert len(names) > 80
    found: dict[Question, dict[str, Any]] = {}
    while len(found) < 500:
        driver = draw.choice(["", f"{draw.randint(340, 620)}.{draw.randint(0, 199)}"])
        python = draw.choice(PYTHONS)
        question = (draw.choice(names), draw.choice(SYSTEMS), python, driver)
        if question not in found:
            found[question] = _planned(*question)
    return found


def _planned(card: str, system: str, python: str, driver: str) -> dict[str, Any]:
    place = situation_here(
        gpus=(card,), system=system, machine="x86_64", driver=driver or None, python=python or None, snapshot=None
    )
    best = resolve(place, Wish()).recommended
    row: dict[str, Any] = json.loads(codec.to_json(answers.TableRow.of(best), indent=0))
    return row


@pytest.mark.long
def test_the_python_reader_says_what_plan_says(
    table: dict[str, Any], questions: dict[Question, dict[str, Any]]
) -> None:
    reader = _reader()
    told = {question: reader.find(table, *question) for question in questions}
    assert told == questions
    assert len({json.dumps(row) for row in told.values()}) > 20


@pytest.mark.long
def test_the_javascript_reader_says_what_plan_says(
    table: dict[str, Any], questions: dict[Question, dict[str, Any]], tmp_path: Path
) -> None:
    node = shutil.which("node")
    if node is None:
        unverified("node is not installed")
    assert node is not None
    (tmp_path / "asked.json").write_text(json.dumps([table, list(questions)]), encoding="utf-8")
    script = (
        f"import {{ find }} from {json.dumps((READERS / 'reader.mjs').as_uri())};"
        'import { readFileSync } from "node:fs";'
        'const [table, questions] = JSON.parse(readFileSync("asked.json", "utf-8"));'
        "console.log(JSON.stringify(questions.map((each) => find(table, ...each))));"
    )
    (tmp_path / "ask.mjs").write_text(script, encoding="utf-8")
    ran = subprocess.run([node, "ask.mjs"], cwd=tmp_path, capture_output=True, check=True)
    assert json.loads(ran.stdout) == list(questions.values())


@pytest.mark.long
def test_what_pip_is_told_is_the_plans_own_command(table: dict[str, Any]) -> None:
    reader = _reader()
    found = reader.find(table, "gtx 1080 ti", "windows", "3.12")
    place = situation_here(
        gpus=("GTX 1080 Ti",), system="windows", machine="x86_64", driver=None, python="3.12", snapshot=None
    )
    commands = [" ".join(str(word) for word in each.words) for each in resolve(place, Wish()).recommended.commands]
    assert [" ".join(["pip", *words]) for words in reader.pip(found)] == commands
    assert reader.find(table, "10de:1b06", "windows", "3.12") == found


@pytest.mark.long
def test_the_readers_refuse_what_they_do_not_know(table: dict[str, Any]) -> None:
    reader = _reader()
    for card, python, message in (("Voodoo 2", "", "Voodoo 2 is not"), ("Tesla K80", "2.7", "Python 2.7 is not")):
        with pytest.raises(KeyError, match=message):
            reader.find(table, card, "linux", python)
    with pytest.raises(ValueError, match="this reader does not know"):
        reader.find({**table, "schema": "rekindle.table/2"}, "Tesla K80", "linux")


def test_a_card_that_is_not_in_it_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "table.json").write_text('{"schema": "rekindle.table/1", "names": {}, "pci": {}, "classes": []}')
    node = shutil.which("node")
    for program, reader in ((sys.executable, "reader.py"), (node, "reader.mjs"))[: 2 if node else 1]:
        words = [str(program), str(READERS / reader), str(tmp_path / "table.json"), "Voodoo 2", "linux"]
        ran = subprocess.run(words, capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stdout, ran.stderr.strip()) == (1, "", "Voodoo 2 is not in the table")


@pytest.mark.long
def test_the_table_keeps_its_schema_and_is_small(table: dict[str, Any]) -> None:
    validator("rekindle.table/1").validate(table)
    # All 40 classes were 117 kB on 2026-11-16; rows are what grows with them.
    assert len(json.dumps(table["rows"])) / len(table["rows"]) < 500
    for steps in table["steps"]:
        assert [driver for driver, _ in steps[:2]] == ["", "0"]
        assert all(one != other for (_, one), (_, other) in itertools.pairwise(steps[1:]))


def test_the_types_name_every_field() -> None:
    for kind in (InstallerTable, answers.TableRow):
        block = re.search(rf"interface {kind.__name__} {{(.*?)^}}", types(), re.DOTALL | re.MULTILINE)
        assert block is not None
        assert re.findall(r"^  (\w+)\??:", block[1], re.MULTILINE) == list(kind.__struct_fields__)


def test_the_command_writes_the_types_and_refuses_what_they_do_not_use(tmp_path: Path) -> None:
    assert rekindle_command("knowledge", "export", "--as", "types", "-o", str(tmp_path / "t.d.ts")).code == 0
    assert (tmp_path / "t.d.ts").read_text(encoding="utf-8") == types()
    assert rekindle_command("knowledge", "export", "--as", "types", "--gpu", "K80").code == 2


def _reader() -> Any:
    spec = importlib.util.spec_from_file_location("table_reader", READERS / "reader.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.long
def test_a_name_with_several_chips_leads_to_their_common_answer() -> None:
    """`GeForce GT 740M` got the answer of one of its chips."""
    every = answers.classes()
    nothing = answers.Answers(drivers=("", "0"), cells={"": (0, 0)}, answers=(), rows=(answers.TableRow(route="none"),))
    made = installer_table((each, {"linux": nothing}) for each in every)
    for name in ("GeForce GT 740M", "GeForce 820M", "GeForce GT 720M", "Tesla K80"):
        card = situation_here(
            gpus=(name,), system="linux", machine="x86_64", driver=None, python=None, snapshot=None
        ).cards[0]
        assert every[made.names[name.lower()]].capabilities == tuple(map(str, card.capabilities)), name


def test_no_mark_is_left_that_a_reader_does_not_fill() -> None:
    several = answers.TableRow(route="none", change=f"find out: {answers.CHIPS}")
    kept = answers.Answers(drivers=("", "0"), cells={"": (0, 0)}, answers=(), rows=(several,))
    texts = [row.change or "" for row in installer_table([(answers.classes()[0], {"linux": kept})]).rows]
    assert any("PCI id" in text for text in texts) and not any("chips\u27e7" in text for text in texts)


def test_ctrl_c_says_that_nothing_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It said that what was finished is kept, and began anew."""

    def stopped(**_: object) -> Iterator[object]:
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(site, "answered", stopped)
    seen = rekindle_command("knowledge", "export", "--as", "table", "-o", str(tmp_path / "t.json"))
    assert seen.code == 130 and "nothing was written" in seen.err and "kept" not in seen.err
    assert list(tmp_path.iterdir()) == []


def test_what_is_started_on_windows_does_not_hear_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process that was asked showed a trace of its own."""
    told: list[bool] = []
    kernel = SimpleNamespace(SetConsoleCtrlHandler=lambda _, deaf: told.append(deaf))
    monkeypatch.setattr(ctypes, "windll", SimpleNamespace(kernel32=kernel), raising=False)
    monkeypatch.setattr(sys, "platform", "win32")
    with site._deaf_to_ctrl_c():
        assert told == [True]
    assert told == [True, False]
