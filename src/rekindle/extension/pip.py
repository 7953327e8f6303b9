"""pip of the environment that an extension is built for, so that its index, proxy and certificates hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rekindle.core import python, run
from rekindle.model.environment import Environment


def command(interpreter: str, words: Sequence[str]) -> list[str]:
    return python.pip(interpreter, *words)


def call(environment: Environment, words: Sequence[str], environ: Mapping[str, str], *, timeout: float) -> run.Result:
    assert environment.interpreter is not None
    return run.call(command(environment.interpreter, words), env=environ, timeout=timeout)
