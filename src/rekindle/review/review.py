"""`review`: scripts in, what is wrong with each out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

import msgspec

from rekindle.core.codec import JsonAnswer
from rekindle.core.findings import Fix, State
from rekindle.core.redact import redact
from rekindle.knowledge.builds.script_rules import rule
from rekindle.model.torch_pin import CPU
from rekindle.review.document import Dialect, Document, load
from rekindle.review.environment import environments_of
from rekindle.review.judging import answered, nothing_said, questions, settled, unsaid
from rekindle.review.other_files import OtherFiles, context_of
from rekindle.review.pythons import python_of
from rekindle.review.question import Asked
from rekindle.review.readers.kinds import read_as
from rekindle.review.remark import Raised, Remark, raised
from rekindle.review.rules import (
    architecture,
    code,
    environments,
    failures,
    installs,
    lines,
    options,
    order,
    shells,
    toolchain,
    wheels,
    words,
)
from rekindle.review.subject import Subject
from rekindle.review.trace import Invocation, NotUnderstood, Trace

_STATES = {"wrong": State.FAIL, "careful": State.WARN, "note": State.PASS}

_OWN_MODULE = ["-m", "rekindle"]


class Reviewed(msgspec.Struct, frozen=True, kw_only=True):
    """One script. `refused` when something in it cannot work. What the script does not say is None."""

    script: str
    dialect: str
    refused: bool
    remarks: tuple[Remark, ...]
    not_understood: tuple[NotUnderstood, ...] = ()
    torch: str | None = None
    cuda: str | None = None
    architectures: tuple[str, ...] = ()
    toolset: str | None = None
    python: str | None = None
    generator: str | None = None
    by_rekindle: bool = False
    """It calls `rekindle build`, which checks what it builds itself."""
    settled: tuple[str, ...] = ()
    """What was asked about the named cards and is answered with yes."""
    questions: tuple[str, ...] = ()
    """What could not be answered, where a card was named: the script is not accepted while there is one."""
    recognised: bool = True
    """It installs or builds something of torch or CUDA. A text in which nothing is recognised is not accepted."""

    @property
    def answered(self) -> bool:
        """Nothing is wrong, and nothing that was asked is open."""
        return not self.refused and self.recognised and not self.questions


class Review(msgspec.Struct, JsonAnswer, frozen=True, kw_only=True):
    """The answer of `rekindle review`."""

    schema: str = "rekindle.review/1"
    gpus: tuple[str, ...] = ()
    scripts: tuple[Reviewed, ...]


def review(paths: Sequence[Path], asked: Asked | None = None) -> Review:
    asked = asked or Asked()
    documents = [load(path) for path in paths]
    subjects = [Subject(document, trace_of(document), asked) for document in documents]
    for subject in subjects:
        subject.project = [each for each in subjects if _together(subject.document, each.document)]
    found = _compared(subjects) if len(subjects) > 1 else [_reviewed(each, every(each)) for each in subjects]
    return Review(gpus=tuple(gpu.sm for gpu in asked.gpus), scripts=tuple(found))


def _together(one: Document, other: Document) -> bool:
    """Files of one folder, or of one below it."""
    if one.folder is None or other.folder is None:
        return False
    mine, theirs = one.folder.absolute(), other.folder.absolute()
    return mine.is_relative_to(theirs) or theirs.is_relative_to(mine)


def review_script(document: Document, asked: Asked | None = None) -> Reviewed:
    subject = Subject(document, trace_of(document), asked or Asked())
    return _reviewed(subject, every(subject))


def every(subject: Subject) -> list[Raised]:
    """What the rules found; of two that one change of the toolkit settles, the one about the GPU."""
    build = (architecture, code, toolchain, options, installs, wheels, order)
    found = [each for part in (*build, environments, words, shells, lines, failures) for each in part.check(subject)]
    settled = {each.line for each in found if each.rule.startswith("toolkit-") and each.fields.get("also")}
    return [each for each in found if not (each.rule == "toolkit-too-new-for-torch" and each.line in settled)]


def _compared(subjects: Sequence[Subject]) -> list[Reviewed]:
    """Side by side, a script that makes no wheel while another does is wrong."""
    bare = [[step for step in subject.torch_builds if step.how == "cmake"] for subject in subjects]
    wheels = [any(step.makes_wheel and step.what != "other" for step in subject.builds) for subject in subjects]
    answer = []
    for subject, configures, makes in zip(subjects, bare, wheels, strict=True):
        found = every(subject)
        if configures and not makes:
            others = [item for item in found if item.rule != "libtorch-only"]
            found = [*others, raised("no-wheel", configures[0].line)]
        answer.append(_reviewed(subject, found))
    return answer


def _reviewed(subject: Subject, found: Iterable[Raised]) -> Reviewed:
    found = list(found)
    remarks = {(each.rule, each.line, str(each.fields)): _remark(subject, each) for each in found}
    asks = [f"line {each.line}: {_filled(text, each.fields)}" for each in found if (text := rule(each.rule).asks)]
    ordered = sorted(remarks.values(), key=lambda remark: (remark.line, -remark.state.rank))
    step = next(iter(subject.torch_builds or subject.builds), None)
    torch = subject.torch_at(step.item if step else None)
    spoken = torch if torch and step else environments_of(subject).release() or torch
    last = step.item if step else subject.trace.invocations[-1] if subject.trace.invocations else None
    cuda = subject.cuda_at(last) if last is not None else None
    toolset, studio, _ = toolchain.toolset_at(subject, last) if last is not None else (None, None, 0)
    python = python_of(subject)
    by_rekindle = any(_calls_rekindle(item) for item in subject.trace.invocations)
    generator, archs = options.generator(subject), architecture.compiled_for(subject) or code.code_for(subject)
    # What was told on the command line is nothing that the script says.
    said = [
        each
        for each, told in ((torch, subject.told), (python, subject.asked.place and subject.asked.place.python))
        if each and not told
    ]
    facts = (*said, cuda, archs, toolset, studio, generator)
    refused = any(remark.state is State.FAIL for remark in ordered)
    # What does not serve the card is never accepted, whichever rule was to say so.
    clashes = [] if refused else [each for one in answered(subject) for each in one.clashes]
    asks += [f"line {each.line}: {answer.sentence}" for each, answer in clashes if each.variant != CPU]
    yes = tuple(dict.fromkeys(settled(subject)))
    asks = [*questions(subject), *asks] if subject.gpus and not by_rekindle else []
    if subject.gpus and not (by_rekindle or refused or yes or asks):
        asks = [nothing_said(subject)]  # accepted is what was asked and answered
    return Reviewed(
        script=subject.document.name,
        dialect=subject.document.dialect.value,
        refused=refused,
        remarks=tuple(ordered),
        not_understood=tuple(
            msgspec.structs.replace(item, text=shown(item.text))
            for item in sorted(subject.trace.not_understood, key=lambda each: each.line)
        ),
        torch=str(spoken.version) if spoken else None,
        cuda=str(cuda.version) if cuda else None,
        architectures=archs,
        toolset=str(toolset) if toolset else studio and f"newest of {studio}",
        python=str(python) if python else None,
        generator=generator,
        by_rekindle=by_rekindle,
        settled=yes,
        questions=tuple(dict.fromkeys(asks)),
        recognised=by_rekindle
        or bool(subject.builds or environments_of(subject).every or environments_of(subject).final or ordered)
        or bool(code.compiled(subject))
        or bool(unsaid(subject))
        or any(facts),
    )


def _calls_rekindle(item: Invocation) -> bool:
    """`rekindle build`, `rekindle extension build`, or the same by `python -m rekindle`."""
    words = list(item.arguments)
    if item.program == "python" and words[:2] == _OWN_MODULE:
        words = words[2:]
    elif item.program != "rekindle":
        return False
    plain = [word for word in words if not word.startswith("-")]
    return plain[:1] == ["build"] or plain[:2] == ["extension", "build"]


def _remark(subject: Subject, found: Raised) -> Remark:
    line = subject.document.line(found.line)
    row, why = rule(found.rule), rule(found.rule).why
    corrected = found.corrected if found.corrected != line else None
    other = subject.trace.opened.get(found.line)
    if other is not None:
        corrected, why = None, f"{why} (read in `{other}`, which this line runs)"
    text = shown(line.strip())
    return Remark(
        id=row.id,
        state=_STATES[row.severity],
        line=found.line,
        text=text,
        found=shown(_filled(row.found, found.fields)),
        why=shown(_filled(why, found.fields), most=1500),  # an address in it is pasted
        source=found.source or _filled(row.source, found.fields),
        corrected=shown(corrected) if corrected is not None else None,
        certain=found.certain and corrected is not None,
        more={line: shown(row) for line, row in found.more.items()} if corrected is not None else {},
        fix=Fix(
            text=f"write: {shown(corrected.strip())}" if corrected else "delete this line", mechanical=found.certain
        )
        if corrected is not None
        else None,
    )


def _filled(sentence: str, fields: dict[str, str]) -> str:
    for name, value in fields.items():
        sentence = sentence.replace("{" + name + "}", value)
    return sentence


@lru_cache(maxsize=1024)
def shown(text: str, *, most: int = 400) -> str:
    """A line as it may be printed: passwords and tokens taken out, and nothing longer than a screen."""
    text = redact(text, names=())  # before it is cut: half a password has not the shape of one
    return text if len(text) <= most else text[: most - 3] + "…"


LINES = 6_000


def trace_of(document: Document) -> Trace:
    """What the script does. What is beyond the limits, or broke the reader, is listed as not understood."""
    trace = Trace(document.dialect)
    if document.folder is not None and document.dialect in (Dialect.SHELL, Dialect.BATCH, Dialect.POWERSHELL):
        trace.files = OtherFiles(document.folder)
    if document.folder is not None:
        docker = document.dialect is Dialect.DOCKERFILE
        trace.beside = OtherFiles(context_of(document.folder, document.text) if docker else document.folder)
    text = document.text
    if len(document.lines) > LINES and document.dialect is not Dialect.NOTEBOOK:
        text = "\n".join(document.lines[:LINES]) + "\n"
        trace.unread(LINES + 1, "", f"only the first {LINES} lines are read")
    try:
        read_as(trace, document.dialect, text)
    except RecursionError:
        trace.unread(1, "", "nested too deeply")
    except UnicodeEncodeError:
        trace.unread(1, "", "it spells half a letter, such as `\\ud800`")
    if trace.full:
        trace.unread(
            trace.invocations[-1].last if trace.invocations else 1, "", "too many commands; the rest is not read"
        )
    return trace
