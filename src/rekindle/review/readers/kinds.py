"""Which reader is for which kind of file."""

from __future__ import annotations

from importlib import import_module

from rekindle.review.document import Dialect
from rekindle.review.trace import Trace

_READERS = {
    **dict.fromkeys((Dialect.BATCH, Dialect.POWERSHELL, Dialect.SHELL), "script.read_whole"),
    Dialect.DOCKERFILE: "dockerfile.read_dockerfile",
    Dialect.NOTES: "notes.read_notes",
    Dialect.MAKEFILE: "makefile.read_makefile",
    Dialect.COMPOSE: "steps.read_compose",
    Dialect.STEPS: "steps.read_steps",
    Dialect.WORKFLOW: "workflow.read_github",
    Dialect.REQUIREMENTS: "lists.read_requirements",
    Dialect.ENVIRONMENT: "lists.read_conda_environment",
    Dialect.RECIPE: "lists.read_recipe",
    Dialect.PROJECT: "lists.read_project",
    Dialect.NOTEBOOK: "python_files.read_notebook",
    Dialect.PYTHON: "python_files.read_code",
    Dialect.INI: "python_files.read_ini",
}


def read_as(trace: Trace, dialect: Dialect, text: str) -> None:
    """The reader of a kind is imported where a file of that kind is read."""
    module, _, name = _READERS[dialect].partition(".")
    getattr(import_module(f"rekindle.review.readers.{module}"), name)(trace, text)
