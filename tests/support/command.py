"""Runs the command line in this process and gives back what a user would see."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema_rs

import rekindle
from rekindle.cli.main import run


class Seen(NamedTuple):
    code: int
    out: str
    err: str

    def json(self) -> Any:
        """The answer, checked against its committed schema."""
        answer = json.loads(self.out)
        validator(answer["schema"]).validate(answer)
        return answer


@cache
def validator(schema: str) -> Any:
    """Of the committed schema of `rekindle.plan/1`."""
    name = schema.removeprefix("rekindle.").replace("/", "-")
    path = Path(rekindle.__file__).parent / "schemas" / f"{name}.json"
    return jsonschema_rs.validator_for(json.loads(path.read_text(encoding="utf-8")))


def rekindle_command(*words: str) -> Seen:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(list(words))
    return Seen(code, out.getvalue(), err.getvalue())


def rekindle_program(*words: str) -> tuple[list[str], dict[str, str]]:
    """The command line and the environment for a process of its own: for tests that kill it."""
    source = str(Path(rekindle.__file__).parents[1])
    return [sys.executable, "-m", "rekindle", *words], {**os.environ, "PYTHONPATH": source}
