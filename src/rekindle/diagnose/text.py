"""From the bytes of a log, however they were saved, to lines that can be read.

PowerShell writes UTF-16, `cmd` the console's code page, CI systems put a time in front of every line, mailers quote,
terminals colour, notebooks and YAML keep what was printed as text in quotes. All of it is taken off before anything is
matched, and the number of the line in the user's own file is kept.
"""

from __future__ import annotations

import codecs
import html
import json
import re
from collections.abc import Iterator

from rekindle.core.regex import LONGEST, re2
from rekindle.knowledge.logs.signatures import log_words
from rekindle.knowledge.tables import cached

_LATIN = re2.Options()
_LATIN.encoding = re2.Options.Encoding.LATIN1
# CSI and OSC sequences, two-byte escapes, and the letters that a terminal overwrote with backspace.
_ESCAPES = re2.compile(
    rb"\x1b\[[0-9;:?<=>]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|\x1b[@-_]|[^\n]\x08", _LATIN
)
_CONTROL = (
    {code: None for code in range(32) if code != 9} | dict.fromkeys(range(127, 160)) | {0x2028: None, 0x2029: None}
)
_PREFIXES = re2.compile(
    r"^(?:"
    # a date and time, then a time alone
    r"\s*\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?(?:[ :|]{0,2}- |[ :|]{1,3}|$)"
    r"|\s*\[?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\]?(?:[ :|]{1,3}|$)"
    r"|\s*[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.-]+ [\w./-]+(?:\[\d+\])?: "  # syslog
    r"|#\d{1,4} (?:\d{1,6}\.\d{1,3} )?"  # docker build
    r"|\d{1,6}\.\d{2,3} (?:\s|$)?"  # docker build, shortened
    r"|[^\t]{1,80}\t[^\t]{1,80}\t"  # `gh run view --log`: job, step
    r"|##\[\w{1,12}\]|::(?:error|warning|notice)[^:]{0,200}::"  # Azure and GitHub annotations
    r"|\s*\d{1,3}>"  # MSBuild's parallel node
    r"|\[rank\d{1,4}\]:\s?"  # torchrun
    r"|\(\w{1,40} pid=\d{1,9}\)\s?"  # ray
    r"|[\w.-]{1,40}\s{1,20}\| "  # docker compose
    r"|E {3,8}"  # pytest
    r"|#{1,6} "  # a heading of Markdown
    r"|\s*(?:> ?){1,8}"  # mail and forum quoting, and the interpreter's prompt
    r"|\s*[|\x{2502}\x{2503}\x{2551}] "  # pip's and rich's frames
    r"|\x{feff}"
    r")"
)

# One line of a notebook or of YAML that holds what a program printed, and a list of lines as Python shows it.
_QUOTED = re.compile(
    r"""\s{0,99}(?:-\s{1,9})?(?:"?[\w./-][\w ./-]{0,59}"?:\s{0,9})?\[?\s{0,9}("(?:[^"\\]|\\.)*")[\]},\s]*\Z"""
)
# A path of Windows as it is: what looks like escapes there is none.
_AS_IT_IS = re.compile(r"""[A-Za-z]:\\[^\\"]""")
_SHOWN = {quote: re.compile(rf"(?:\bb|\[){quote}") for quote in "'\""}
_BETWEEN = re.compile(r"""(?:\\r)?\\n(?:['"], ?['"])?""")
# A message that a person gives in a sentence, behind words that no program writes.
_TOLD = re2.compile(
    r"^((?:[*-] )?[A-Za-z][\w'-]*(?:[ ,]+[\w'+.&-]+){2,30}?(?::| ->| =>|,| -|\.| with| says?| gives?| got)[ \x60]+)"
    r"((?:[a-z_]\w*\.){0,4}[A-Z]\w*(?:Error|Exception): \S.{7,}|(?:ERROR|(?:fatal )?error): \S.{7,})$"
)
# Colours whose first character was lost or is shown, and the entities of a web page.
_COLOUR = re.compile(r"(?:[\x1b\u2190]|\\(?:u001b|x1b|033))?\[\d{1,2}(?:;\d{1,3})*m")
_ENTITY = re.compile(r"&(?:quot|gt|lt|amp|#39|#x27|nbsp);")


class Decoder:
    """Bytes as they come to UTF-8 with `\\n` line ends; the encoding is settled by the first block."""

    def __init__(self) -> None:
        self._wide: codecs.IncrementalDecoder | None = None
        self._settled = False
        self._carry_cr = False

    def feed(self, data: bytes, *, last: bool = False) -> bytes:
        if not self._settled and data:
            self._settle(data)
        if self._wide is not None:
            data = self._wide.decode(data, last).encode("utf-8", "replace")
        if self._carry_cr:
            data = b"\r" + data
            self._carry_cr = False
        if data.endswith(b"\r") and not last:
            data, self._carry_cr = data[:-1], True
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n")
        if b"\x1b" in data or b"\x08" in data:
            data = _ESCAPES.sub(b"", data)
        return data.replace(b"\0", b"") if b"\0" in data else data

    def _settle(self, data: bytes) -> None:
        self._settled = True
        wide = _wide(data)
        if wide:
            self._wide = codecs.getincrementaldecoder(wide)("replace")


def _wide(data: bytes) -> str | None:
    """UTF-16 or UTF-32, by mark or by where the zero bytes are."""
    if data[:4] in (b"\xff\xfe\0\0", b"\0\0\xfe\xff"):
        return "utf-32"
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    sample = data[:4000]
    if len(sample) >= 4:
        even, odd = sample[0::2].count(0), sample[1::2].count(0)
        if odd > len(sample) * 0.3 and even < len(sample) * 0.05:
            return "utf-16-le"
        if even > len(sample) * 0.3 and odd < len(sample) * 0.05:
            return "utf-16-be"
    return None


# How packed files, programs and pictures begin.
_MAGIC = (
    b"\x7fELF",
    b"PK\x03\x04",
    b"\x89PNG",
    b"\xfd7zXZ",
    b"7z\xbc\xaf",
    b"BZh9",
    b"\x28\xb5\x2f\xfd",
    b"\xff\xd8\xff",
)
# A log that was cut while a program wrote to it, or whose machine lost power, has long runs of zeros.
_ZEROS = re2.compile(rb"\x00{16,}", _LATIN)
_BINARY = re2.compile(rb"[\x00-\x07\x0e-\x1a\x1c-\x1f]", _LATIN)
_SAMPLE = 8_000
_FEW = 0.02


def is_binary(data: bytes) -> bool:
    """Whether the beginning of a file is no text in any encoding."""
    if data.startswith(_MAGIC):
        return True
    if _wide(data):
        return False
    sample = _ZEROS.sub(b"", data[:_SAMPLE])
    return len(_BINARY.findall(sample)) > _FEW * len(sample)


def readable(line: bytes) -> str:
    """One raw line as text without control characters, and at most a few thousand characters of it."""
    if len(line) > LONGEST:
        line = line[: LONGEST // 2] + b" ... " + line[-LONGEST // 2 :]
    if b"\r" in line:
        # A progress bar rewrites its line: what stands at the end is what the user saw.
        line = next((part for part in reversed(line.split(b"\r")) if part.strip()), b"")
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        text = _legacy(line)
    return text.translate(_CONTROL).rstrip()


def _legacy(line: bytes) -> str:
    """A code page, by guess: what matters for matching is ASCII in all of them."""
    for encoding in ("gb18030", "cp1252"):
        try:
            return line.decode(encoding)
        except UnicodeDecodeError:
            continue
    return line.decode("utf-8", "replace")


def unquoted(text: str) -> Iterator[str]:
    """The lines that a line stands for: one, or those that it holds in quotes."""
    if "m" in text and "[" in text:
        text = _COLOUR.sub("", text)
    if "&" in text:
        text = _ENTITY.sub(lambda match: html.unescape(match[0]), text)
    quoted = _QUOTED.match(text) if '"' in text and "\\" in text else None
    if quoted and "\\" in quoted[1] and not _AS_IT_IS.search(quoted[1]):
        try:
            inside = str(json.loads(quoted[1]))
        except ValueError:
            yield text
            return
        yield from _COLOUR.sub("", inside).rstrip().splitlines() or [""]
        return
    # Step by step, not by one pattern: with a quote at every second letter that took hours.
    end = text.rstrip("])},. \t") if "\\n" in text else ""
    shown = _SHOWN[end[-1]].search(end, 0, len(end) - 1) if end.endswith(("'", '"')) else None
    if shown is None or "\\n" not in end[shown.end() : -1]:
        told = _TOLD.match(text) if "rror: " in text or "RROR: " in text else None
        yield from told.groups() if told else (text,)
        return
    yield text[: shown.start()]
    for part in _BETWEEN.split(end[shown.end() : -1]):
        yield part.replace("\\'", "'").replace('\\"', '"').replace("\\\\", "\\")


def bare(text: str) -> str:
    """The line as the tool printed it: without times, CI prefixes, quoting and indentation."""
    for _ in range(5):
        match = _PREFIXES.match(text)
        if not match or not match.end():
            break
        text = text[match.end() :]
    return _in_english(text.strip())


def _in_english(text: str) -> str:
    """The few words that matter, said in English: codes do not need it, GCC and the shell have none."""
    foreign, dictionary = _dictionary()
    if foreign.search(text):
        for said, means in dictionary:
            text = text.replace(said, means if said.isascii() else f" {means} ")
        text = _GAPS.sub("", text).strip()
    return text if text.isascii() else text.replace("\N{FULLWIDTH COLON} ", ": ").replace("\N{FULLWIDTH COLON}", ": ")


_GAPS = re.compile(r"(?<=[\[(]) +| +(?=[ :\N{FULLWIDTH COLON},.;)\]])")


@cached
def _dictionary() -> tuple[re2._Regexp, tuple[tuple[str, str], ...]]:
    """The longest first, so that "fatal error" is not read as "error"."""
    pairs = [(said, row.means) for row in log_words() for said in row.said]
    pairs.sort(key=lambda pair: -len(pair[0]))
    return re2.compile("|".join(re2.escape(said) for said, _ in pairs)), tuple(pairs)
