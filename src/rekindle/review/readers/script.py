"""A script, or a piece of one, read by the reader of its language."""

from __future__ import annotations

from rekindle.review.document import Dialect
from rekindle.review.readers.batch import read_batch
from rekindle.review.readers.powershell import read_powershell
from rekindle.review.readers.recorder import Recorder
from rekindle.review.readers.shell import read_shell
from rekindle.review.trace import LONGEST_VALUE, Trace


def read_script(recorder: Recorder, text: str, first: int = 1) -> None:
    """What the recorder's language makes of a text that begins at line `first`, but for lines that nobody wrote."""
    if len(text) > LONGEST_VALUE:
        rows = text.split("\n")
        for at, row in enumerate(rows):
            if len(row) > LONGEST_VALUE:
                recorder.trace.unread(first + at, row, f"longer than {LONGEST_VALUE:,} letters")
                rows[at] = ""
        text = "\n".join(rows)
    readers = {Dialect.BATCH: read_batch, Dialect.POWERSHELL: read_powershell}
    readers.get(recorder.dialect, read_shell)(recorder, text, first)


def read_whole(trace: Trace, text: str) -> None:
    read_script(Recorder(trace, trace.dialect), text)
