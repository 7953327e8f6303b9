"""`diagnose`: one log in, one answer out."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from rekindle.core import files
from rekindle.core.command import rekindle
from rekindle.core.console import clean
from rekindle.core.errors import BadInput, NotFound
from rekindle.core.findings import Fix
from rekindle.core.redact import redact
from rekindle.diagnose import fix
from rekindle.diagnose.advice import advise
from rekindle.diagnose.answer import LIKELY, POSSIBLE, VERY_LIKELY, Cause, Diagnosis, EvidenceLine, LogOutcome
from rekindle.diagnose.events import Event, LineKind, read
from rekindle.diagnose.evidence import Judged, judged
from rekindle.diagnose.expressions import LONGEST
from rekindle.diagnose.facts import Entity, Facts, gather, present
from rekindle.diagnose.match import SPECIFIC, SignatureMatch, matches
from rekindle.diagnose.outcome import Ending, complained, judge, next_steps
from rekindle.diagnose.recovered import attempts, passed_tests, tried_again
from rekindle.diagnose.scan import BLOCK, KeptLines, scan, unwrapped
from rekindle.diagnose.text import is_binary
from rekindle.knowledge.cuda.libraries import is_test_library
from rekindle.knowledge.logs import signatures
from rekindle.knowledge.torch.patches import Patch
from rekindle.model.cuda_line import CudaLine
from rekindle.source.symptoms import patches_shown

_SHOWN = 240
_WRAPPERS = 12
# Paths and words of PyTorch's own source tree.
_TORCH_SOURCE = re.compile(
    r"(?i)\bpytorch\b|caffe2|\baten\b|third_party|torch[/\\]csrc|cmake[/\\]public|NNPACK|torch-src"
)
# A library that does not load is past its source.
_LOADING = "dll / shared library"
_TELLING = (LineKind.ERROR, LineKind.WRAPPER)
# Folders that are nobody's name.
_NO_PACKAGES = frozenset({"src", "csrc", "build", "code", "app", "workspace", "work", "ops", "tmp", "home", "project"})
# What a diagnosis repeats of the facts: not the whole of a recorded machine.
_UNTOLD = frozenset((
    "situation", "studio", "studio_year", "wsl", "memory_free", "memory_beyond", "status_program", "program", "chip",
    "amd_card", "library_cuda", "without_gpus", "installs", "demands", "unserved", "least_card", "signs", "told",
    "runtime_image",
))  # fmt: skip
_LACKS = "torch_lacks_gpu_arch"
_TOLD = tuple(name for name in Facts.__struct_fields__ if name not in _UNTOLD)


def diagnose_text(text: str | bytes, *, known: Facts | None = None) -> Diagnosis:
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return diagnose_blocks([data], known=known)


def diagnose_file(path: Path, *, known: Facts | None = None) -> Diagnosis:
    # Closed here, not when nobody refers to it any more: Windows does not remove a file that is open.
    with closing(_blocks(path)) as blocks:
        return diagnose_blocks(checked(blocks, str(path)), known=known, source=str(path))


def diagnose_blocks(blocks: Iterable[bytes], *, known: Facts | None = None, source: str = "") -> Diagnosis:
    return answer(scan(blocks), known=known, source=source)


def checked(blocks: Iterable[bytes], source: str) -> Iterator[bytes]:
    """The same blocks, unless they begin like a file that is no text."""
    first = True
    for block in blocks:
        if first and is_binary(block):
            message = f"`{source}` is not a text file"
            raise BadInput(message, hint="name the log itself; unpack an archive first (only gzip is read as it is)")
        first = first and not block
        yield block


def answer(kept: KeptLines, *, known: Facts | None = None, source: str = "") -> Diagnosis:
    """What the lines that were kept amount to. Where a failure shows no cause, a console may have cut the lines."""
    found, facts = _answer(kept, known, source)
    if found.outcome is not LogOutcome.UNKNOWN:
        return found
    joined = unwrapped(kept)
    again = _answer(joined, known, source)[0] if joined is not None else found
    if again.outcome is LogOutcome.CAUSE:
        return again
    return msgspec.structs.replace(found, runs=_for_card(facts, found.judged))


def _answer(kept: KeptLines, known: Facts | None, source: str) -> tuple[Diagnosis, Facts]:
    events = tuple(passed_tests(read(kept.lines)))
    facts, entities = gather(((event.number, event.text) for event in events), known)
    pairs = judged(facts)
    ending = judge(events)
    order = ranked(matches(events, facts), events, pairs)
    if not order and ending.outcome is not LogOutcome.NONE:
        order = ranked(matches(events, facts, warned=True), events, pairs)
    shown = [match.event.number for entry in order for match in entry.matches]
    if order and tried_again(events, shown + [event.number for event in events if event.kind in _TELLING]):
        order = []
    wrappers = [event for event in events if event.kind is LineKind.WRAPPER and event.hit]
    told = {name: str(value) for name in _TOLD if (value := getattr(facts, name)) not in (None, ())}
    if facts.gpus:
        told["gpus"] = ", ".join(gpu.sm for gpu in facts.gpus)
    causes = tuple(_cause(entry, order, events, facts) for entry in order)
    if ending.outcome is not LogOutcome.NONE:
        clash = next((pair for pair in pairs if pair.verdict == "clash" and pair.alone), None)
        causes = _behind(clash, _by_facts(clash, entities, ending, facts), _with_patches(causes, events))
    if causes:
        ending = Ending(outcome=LogOutcome.CAUSE, summary=causes[0].title)
    found = Diagnosis(
        source=source,
        outcome=ending.outcome,
        summary=ending.summary,
        causes=causes,
        wrappers=tuple(_evidence(event) for event in wrappers[:_WRAPPERS]),
        unexplained=tuple(_evidence(event) for event in ending.lines),
        lines=kept.total,
        facts=told,
        entities=tuple(
            msgspec.structs.replace(each, value=redact(clean(each.value), names=())[:_SHOWN]) for each in entities
        ),
        judged=pairs,
        next=next_steps({each.kind for each in entities}, facts.signs) if ending.outcome is LogOutcome.UNKNOWN else (),
    )
    return found, facts


def _for_card(facts: Facts, pairs: Sequence[Judged]) -> Fix | None:
    """Whoever wants torch on the one card that is named, and names none that runs on it, is told which does."""
    signs = {*facts.signs}
    wants = signs & {"uninstalled", "dropped"} or {"asks", "names_torch"} <= signs
    known = any(pair.verdict == "fits" and pair.label == _LACKS for pair in pairs) or "torch_works" in signs
    if len(set(facts.gpus)) != 1 or known or not wants:
        return None
    found = advise(facts)
    return Fix(text=found.text, commands=found.commands[:1]) if found and found.commands else None


def _cause(entry: RankedCause, order: Sequence[RankedCause], events: Sequence[Event], facts: Facts) -> Cause:
    row = entry.first.cause
    fields: dict[str, str] = {}
    for match in reversed(entry.matches):
        fields |= match.fields
    evidence: dict[int, EvidenceLine] = {}
    for match in entry.matches[:6]:
        evidence[match.event.number] = _evidence(match.event)
    fields["said"] = " ".join(match.event.text for match in entry.matches[:3])
    fields["log"] = "\n".join(event.text for event in events if event.kind in _TELLING)[:LONGEST]
    if fields.get("failing") in _NO_PACKAGES:
        fields["failing"] = "torch"
    if "dll" in fields and is_test_library(_file_name(fields["dll"]), "windows"):
        fields["test_library"] = _file_name(fields["dll"])
    rivals = tuple(
        other.label for other in order if other is not entry and other.first.event.number == entry.first.event.number
    )
    shown = tuple(evidence[number] for number in sorted(evidence))
    fixes = fix.write(row, fields, facts, attempts(events))
    found = _of_row(row, entry.sure, entry.first.event.number, shown, fixes)
    return msgspec.structs.replace(
        found, job=entry.first.event.job, explained_by=entry.explained_by, links=row.links, also=rivals
    )


def _of_row(
    row: signatures.CauseRow, sure: float, line: int, evidence: tuple[EvidenceLine, ...], fixes: Sequence[Fix]
) -> Cause:
    return Cause(
        label=row.id,
        title=row.title,
        family=row.family,
        confidence=sure,
        line=line,
        evidence=evidence,
        explanation=row.explanation,
        fix=fixes[0],
        more=tuple(fixes[1:]),
    )


def _with_patches(causes: tuple[Cause, ...], events: Sequence[Event]) -> tuple[Cause, ...]:
    """A fault of PyTorch's own source that the catalogue mends: said with the first cause, or as a cause of its own."""
    heard = [event for event in events if event.kind not in (LineKind.COMMAND, LineKind.PROGRESS, LineKind.SUCCESS)]
    found = patches_shown(event.text for event in heard)
    if not found:
        return causes
    if not causes:
        row = signatures.cause("source_code_error")
        assert row is not None
        first = next(event for event in heard if event.text)
        causes = (_of_row(row, VERY_LIKELY, first.number, (_evidence(first),), [Fix(text="")]),)
    remedy = causes[0].fix
    patch = _by_patches(found)
    # Another project fails with the same message: what mends it everywhere comes first there.
    own = causes[0].family != _LOADING and any(_TORCH_SOURCE.search(event.text) for event in heard)
    own = own or not remedy.text
    order = (patch, remedy, *causes[0].more) if own else (remedy, *causes[0].more, patch)
    order = tuple(each for each in order if each.text)
    told = msgspec.structs.replace(order[0], mechanical=remedy.mechanical)
    return (msgspec.structs.replace(causes[0], fix=told, more=order[1:]), *causes[1:])


def _by_patches(found: Sequence[Patch]) -> Fix:
    names = " and ".join(f"`{patch.id}`" for patch in found)
    if not any(patch.edits for patch in found):
        options = ", ".join(f"{name}={value}" for patch in found for name, value in patch.options.items())
        return Fix(text=f"For {names} no file is edited: build with {options}, as `rekindle build` does.")
    text = f"If it is PyTorch's own source that fails, patch {names} mends it: run this in the folder of the source."
    return Fix(text=text, commands=(rekindle("patch", ".", *(w for each in found for w in ("--only", each.id))),))


def _by_facts(clash: Judged | None, entities: Sequence[Entity], ending: Ending, facts: Facts) -> tuple[Cause, ...]:
    """Where no message is known, two things that cannot go together are the cause by themselves."""
    row = signatures.cause(clash.label) if clash else None
    shown = [
        EvidenceLine(line=each.line, text=f"{each.kind}: {each.value}")
        for each in entities
        if each.read and each.kind != "index" and (each.kind != "torch" or each.value.startswith(str(facts.torch)))
    ]
    if clash is None or row is None:
        return ()
    built = CudaLine.parse(facts.variant)
    lacking = facts.unserved if row.id == "gpu_too_old_for_kernel" else None
    fields = present(said=clash.text, package=lacking, found=facts.cuda, torch_cuda=built and built.cuda)
    line = ending.lines[0].number if ending.lines else shown[0].line if shown else 1
    found = _of_row(row, LIKELY, line, tuple(shown), fix.write(row, fields, facts))
    told = f"{clash.text[:1].upper()}{clash.text[1:]}. {row.explanation}"
    return (msgspec.structs.replace(found, explanation=told),)


def _behind(clash: Judged | None, found: tuple[Cause, ...], causes: tuple[Cause, ...]) -> tuple[Cause, ...]:
    """Two things that cannot go together come before a vague message that follows from it, and where there is none."""
    row = signatures.cause(clash.label) if clash and found else None
    # A driver that does not drive the card is all of it, whatever message follows.
    sure = clash is not None and (clash.label == "driver_not_loaded" or clash.pair == "driver and card")
    vague = causes and (sure or causes[0].confidence <= POSSIBLE)
    if row is None or not vague or causes[0].label not in (*row.over, row.id):
        return causes or found
    same = causes[0].label == row.id
    return (*found, *(() if same else (msgspec.structs.replace(causes[0], explained_by=row.id),)), *causes[1:])


def _file_name(path: str) -> str:
    return path.replace("\\", "/").rpartition("/")[2]


def _evidence(event: Event) -> EvidenceLine:
    # Before it is cut: half a password has not the shape of one.
    text = redact(clean(event.text), names=())
    return EvidenceLine(line=event.number, text=text if len(text) <= _SHOWN else text[: _SHOWN - 4] + " ...")


def _blocks(path: Path) -> Generator[bytes, None, None]:
    try:
        files.ordinary(path)
        most = _SPARE + _RATIO * path.stat().st_size
        with path.open("rb") as raw:
            # By what is inside, not by the name: CI systems hand out `.log` files that are packed. Opened once: what a
            # shell hands over (`<(…)`) cannot be read again.
            packed = raw.peek(2)[:2] == b"\x1f\x8b"
            stream = cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if packed else raw
            while block := stream.read(BLOCK):
                most -= len(block) if packed else 0
                if most < 0:
                    message = f"`{path}` unpacks to more than {_RATIO} times its size"
                    raise BadInput(message, hint="if that is right, unpack it yourself and name the log")
                yield block
    except FileNotFoundError as error:
        hint = "check the path; quote it if it has spaces; `-` reads standard input"
        raise NotFound.path(path, hint=hint) from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        message = f"`{path}` is not a complete gzip file"
        raise BadInput(message, hint="copy or download it again, or unpack what is left with `gzip -dc`") from error
    except OSError as error:
        message = f"cannot read `{path}`: {error.strerror or error}"
        raise NotFound(message, hint="check the permissions of the file") from error


# Deflate reaches 1,032:1 on nothing but zeros; logs of repeated lines were seen at 60:1.
_RATIO, _SPARE = 100, 64 << 20


_FAINT = 15
# The weight of a message that nothing else says: on a line of no known kind it is as good as on one of an error.
_ONE_CAUSE = 82
# A compiler's own error: `k.cu(1): error: …`, `a.cpp:12:5: error: …`.
_COMPILING = re.compile(
    r"\.(?:c|cc|cpp|cxx|cu|cuh|h|hh|hpp|inl)(?:\(\d+(?:,\d+)?\)\s?|(?::\d+){1,2}): (?:fatal )?error"
)


class RankedCause(msgspec.Struct, frozen=True, kw_only=True):
    """A cause with the matches that show it. `explained_by` names the cause that accounts for it."""

    label: str
    matches: tuple[SignatureMatch, ...]
    score: float
    sure: float
    explained_by: str | None = None

    @property
    def first(self) -> SignatureMatch:
        return self.matches[0]


def ranked(found: Sequence[SignatureMatch], events: Sequence[Event], pairs: Sequence[Judged]) -> list[RankedCause]:
    """The causes, the one to fix first in front. Soft signs count only where the work did not succeed."""
    told = any(event.kind in _TELLING and event.hit for event in events)
    broken = told or judge(events).outcome is not LogOutcome.NONE
    solid = [match for match in found if not match.signature.soft or broken]
    # A program that trains or serves, with no error anywhere, is not stopped by what it was warned of.
    going = [event for event in events if event.kind is LineKind.GOING and event.tool == "any"]
    if len(going) > 1 and not told and not complained(events):
        solid = [match for match in solid if not match.cause.running]
    last = max((event.number for event in events if event.kind is LineKind.ERROR), default=0)
    # A warning of Python that a library does without a part of it: what stops the program is another error.
    early = [match for match in solid if match.event.kind is LineKind.WARNING and match.event.number < last]
    if all(match in early and match.cause.family == _LOADING and "Warning: " in match.event.text for match in solid):
        return []
    labels: dict[str, list[SignatureMatch]] = {}
    for match in solid:
        labels.setdefault(match.cause.id, []).append(match)
    clashes = {pair.label for pair in pairs if pair.verdict == "clash"}
    entries = [_entry(label, matches, label in clashes) for label, matches in labels.items()]
    entries = [_beside(entry, entries) or _explained(entry, entries) for entry in entries]
    entries.sort(key=lambda entry: (entry.explained_by is not None, -entry.score, entry.first.event.number))
    return [_weighed(entry, entries, events) for entry in entries]


def _weighed(entry: RankedCause, entries: Sequence[RankedCause], events: Sequence[Event]) -> RankedCause:
    """One that another explains or outranks is only possible; one that is the last word of the log is very likely."""
    if entry.explained_by is not None or entry is not entries[0]:
        return msgspec.structs.replace(entry, sure=POSSIBLE)
    rivals = [other for other in entries[1:] if other.explained_by is None]
    if entry.sure != LIKELY or rivals:
        return entry
    errors = [event.number for event in events if event.kind is LineKind.ERROR]
    first = entry.first
    kind, weight = first.event.kind, first.signature.weight
    told = first.signature.warns if kind is LineKind.WARNING else kind is LineKind.ERROR or weight >= _ONE_CAUSE
    last = told and first.event.number >= max(errors, default=0) and weight >= SPECIFIC
    return msgspec.structs.replace(entry, sure=VERY_LIKELY) if last else entry


def _entry(label: str, matches: list[SignatureMatch], agreed: bool) -> RankedCause:
    """`agreed`: the things that the log names clash in just this way."""
    best = sorted(matches, key=lambda match: (-match.signature.weight, match.event.number))
    distinct = len({match.signature.id for match in matches})
    told = best[0].event.kind is not LineKind.WARNING or best[0].signature.weight >= SPECIFIC
    plain = not best[0].signature.vague and told
    # Two patterns of one line are one witness.
    twice = distinct > 1 and plain and len({match.event.number for match in matches}) > 1
    return RankedCause(
        label=label,
        matches=tuple(best),
        score=best[0].signature.weight + min(distinct - 1, 3),
        sure=VERY_LIKELY if agreed or twice else LIKELY if plain else POSSIBLE,
    )


def _beside(entry: RankedCause, entries: Sequence[RankedCause]) -> RankedCause | None:
    """A warning about the card or the driver, in a build that a compiler's error has ended, is not why it ended.

    torch warns of them whenever it is imported, and setup.py of every extension imports it.
    """
    if not _only_warned(entry):
        return None
    for other in entries:
        error = other.first.event
        if not other.first.cause.running and error.kind is LineKind.ERROR and _COMPILING.search(error.text):
            return msgspec.structs.replace(entry, explained_by=other.label)
    return None


def _only_warned(entry: RankedCause) -> bool:
    return entry.first.cause.running and all("Warning: " in match.event.text for match in entry.matches)


def _explained(entry: RankedCause, entries: Sequence[RankedCause]) -> RankedCause:
    for other in entries:
        # A faint sign does not explain away a plain one.
        aside = _only_warned(other) and _COMPILING.search(entry.first.event.text)
        plain = other.score + _FAINT >= entry.score and not aside
        if other.label != entry.label and plain and entry.label in other.first.cause.over:
            # Two causes that claim to explain each other: the more specific one does.
            mutual = other.label in entry.first.cause.over
            if not mutual or other.score > entry.score:
                return msgspec.structs.replace(entry, explained_by=other.label)
    return entry
