"""Runs the command line in this process and gives back what a user would see."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema

import rekindle
from rekindle.cli.main import run


class Seen(NamedTuple):
    code: int
    out: str
    err: str

    def json(self) -> Any:
        """The answer, checked against its committed schema."""
        answer = json.loads(self.out)
        name = answer["schema"].removeprefix("rekindle.").replace("/", "-")
        schema = json.loads((Path(rekindle.__file__).parent / "schemas" / f"{name}.json").read_text(encoding="utf-8"))
        jsonschema.validate(answer, schema)
        return answer


def rekindle_command(*words: str) -> Seen:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(list(words))
    return Seen(code, out.getvalue(), err.getvalue())
