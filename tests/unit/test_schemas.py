"""The committed JSON Schemas are those of the code."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from rekindle.cli.main import VERBS, cli

sys.path.insert(0, str(Path(__file__).parents[2]))
from tools import schemas

ANSWERS = schemas.answers()


@pytest.mark.parametrize("name", ANSWERS)
def test_the_committed_schema_is_current(name: str) -> None:
    committed = schemas.file_of(name).read_text(encoding="utf-8")
    assert committed == schemas.render(name, ANSWERS[name]), "run `python tools/schemas.py`"


def test_what_gives_an_answer_gives_it_as_json() -> None:
    """The rest runs until you stop it, writes a file of its own, or only changes which tables are used."""

    def verbs(name: str, verb: click.Command) -> Iterator[str]:
        if isinstance(verb, click.Group):
            for each, below in verb.commands.items():
                yield from verbs(f"{name} {each}", below)
        elif not any("--json" in option.opts for option in verb.params):
            yield name

    context = click.Context(cli)
    assert {each for name in VERBS for each in verbs(name, cli.get_command(context, name) or cli)} == {
        "shell", "serve", "mcp", "shelf serve", "fleet scheduler", "fleet worker",
        "knowledge export", "knowledge update", "knowledge reset",
    }  # fmt: skip
