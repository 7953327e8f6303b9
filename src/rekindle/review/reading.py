"""A document as a trace: the reader of its language, within limits."""

from __future__ import annotations

from collections.abc import Callable

from rekindle.review.document import Dialect, Document
from rekindle.review.other_files import OtherFiles
from rekindle.review.trace import Trace

LINES = 6_000


def trace_of(document: Document) -> Trace:
    """What the script does. What is beyond the limits, or broke the reader, is listed as not understood."""
    trace = Trace(document.dialect)
    if document.folder is not None and document.dialect in (Dialect.SHELL, Dialect.BATCH, Dialect.POWERSHELL):
        trace.files = OtherFiles(document.folder)
    if document.folder is not None:
        trace.beside = OtherFiles(document.folder)
    text = document.text
    if len(document.lines) > LINES:
        text = "\n".join(document.lines[:LINES]) + "\n"
        trace.unread(LINES + 1, "", f"only the first {LINES} lines are read")
    try:
        _read(trace, document.dialect, text)
    except RecursionError:
        trace.unread(1, "", "nested too deeply")
    if trace.full:
        trace.unread(
            trace.invocations[-1].last if trace.invocations else 1, "", "too many commands; the rest is not read"
        )
    return trace


def _read(trace: Trace, dialect: Dialect, text: str) -> None:
    from rekindle.review.readers import (
        batch,
        compose,
        dockerfile,
        lists,
        makefile,
        notes,
        powershell,
        shell,
        workflow,
    )

    readers: dict[Dialect, Callable[[Trace, str], object]] = {
        Dialect.BATCH: batch.read_batch,
        Dialect.POWERSHELL: powershell.read_powershell,
        Dialect.SHELL: shell.read_shell,
        Dialect.DOCKERFILE: dockerfile.read_dockerfile,
        Dialect.NOTES: notes.read_notes,
        Dialect.MAKEFILE: makefile.read_makefile,
        Dialect.COMPOSE: compose.read_compose,
        Dialect.REQUIREMENTS: lists.read_requirements,
        Dialect.ENVIRONMENT: lists.read_conda_environment,
        Dialect.RECIPE: lists.read_recipe,
        Dialect.PROJECT: lists.read_project,
        Dialect.WORKFLOW: workflow.read_github,
        Dialect.GITLAB: workflow.read_gitlab,
    }
    readers[dialect](trace, text)
