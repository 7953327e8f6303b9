"""A document as a trace: the reader of its language, within limits."""

from __future__ import annotations

from rekindle.review.document import LISTS, Dialect, Document
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
    if dialect is Dialect.BATCH:
        from rekindle.review.readers.batch import read_batch

        read_batch(trace, text)
    elif dialect is Dialect.POWERSHELL:
        from rekindle.review.readers.powershell import read_powershell

        read_powershell(trace, text)
    elif dialect is Dialect.SHELL:
        from rekindle.review.readers.shell import read_shell

        read_shell(trace, text)
    elif dialect is Dialect.DOCKERFILE:
        from rekindle.review.readers.dockerfile import read_dockerfile

        read_dockerfile(trace, text)
    elif dialect is Dialect.NOTES:
        from rekindle.review.readers.notes import read_notes

        read_notes(trace, text)
    elif dialect is Dialect.MAKEFILE:
        from rekindle.review.readers.makefile import read_makefile

        read_makefile(trace, text)
    elif dialect is Dialect.COMPOSE:
        from rekindle.review.readers.compose import read_compose

        read_compose(trace, text)
    elif dialect in LISTS:
        from rekindle.review.readers import lists

        {
            Dialect.REQUIREMENTS: lists.read_requirements,
            Dialect.ENVIRONMENT: lists.read_conda_environment,
            Dialect.RECIPE: lists.read_recipe,
            Dialect.PROJECT: lists.read_project,
        }[dialect](trace, text)
    else:
        from rekindle.review.readers.workflow import read_workflow

        read_workflow(trace, text, gitlab=dialect is Dialect.GITLAB)
