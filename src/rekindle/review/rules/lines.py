"""Faults that one line shows by itself, each a row of the table; and a few that need a look around."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rekindle.core.regex import re2
from rekindle.core.version import Version
from rekindle.knowledge.builds.limits import since
from rekindle.knowledge.builds.script_rules import script_rules
from rekindle.knowledge.tables import cached
from rekindle.review.builds import image_system
from rekindle.review.document import LISTS, Dialect
from rekindle.review.packages import option_meant
from rekindle.review.pythons import environment_python, image_of, python_of
from rekindle.review.readers.recorder import joined
from rekindle.review.remark import Raised, raised
from rekindle.review.subject import Subject
from rekindle.review.trace import Invocation

_SYSTEM_PATHS = re.compile(r"(?i)system32|systemroot|windir|/usr/bin|/bin:|:/bin|path|conda|\$|%|!")
_MANAGED_FROM = {"ubuntu": 23.04, "debian": 12.0}


def check(subject: Subject) -> Iterator[Raised]:
    yield from _rows(subject)
    for item in subject.trace.invocations if not subject.notes else ():
        yield from _options(item)
        yield from _managed(subject, item)
        yield from _in_the_tree(subject, item)
        yield from _get_pip(subject, item)
        yield from _installer(subject, item)
        yield from _lacks(subject, item)
        yield from _old_key(subject, item)
        if (
            item.program == "activate"
            and not (item.called or item.child or item.dialect.windows)
            and "/" in item.words[0].text
        ):
            yield raised("activate-not-sourced", item.line, what=item.words[0].raw)
        if item.dialect is Dialect.POWERSHELL and item.words[-1].text == "\\":
            yield raised("continuation-powershell", item.words[-1].line)
    yield from _paths(subject)
    yield from _bytes(subject)
    yield from _lost(subject) if subject.document.dialect in (Dialect.DOCKERFILE, Dialect.WORKFLOW) else ()


@cached
def _compiled(pattern: str) -> re.Pattern[str]:
    return re2.compile(pattern)  # type: ignore[no-any-return]


def _installer(subject: Subject, item: Invocation) -> Iterator[Raised]:
    """`apt` in an image of Red Hat's: it stops there, unless somebody may have put one in, or asks first."""
    rows = script_rules().image_installer
    owner = next((row for row in rows if item.program in row.programs), None)
    image = image_of(subject, item) if owner is not None and not item.conditional else None
    here = next((row for row in rows if _compiled(row.pattern).search(image.name)), None) if image else None
    if image is not None and here is not None and here is not owner:
        right = " or ".join(f"`{each}`" for each in here.programs[:2])
        yield raised(
            "no-such-installer", item.line, program=item.program, image=image.name[:80], family=here.name, right=right
        )


_NEW_KEY = re.compile(
    r"A4B469963BF863CC|3bf863cc|cuda-keyring|(?:rm|mv|sed)\b.*sources\.list\.d|allow-(?:insecure|unauth)"
)


def _old_key(subject: Subject, item: Invocation) -> Iterator[Raised]:
    """`apt-get update` in an image of PyTorch's that holds NVIDIA's repository with the key of before April 2022."""
    image = image_of(subject, item) if item.program in ("apt", "apt-get") and "update" in item.arguments else None
    number = image.pytorchs if image is not None and image.known and "devel" in image.name else None
    if image is None or number is None or Version(number) >= since("pytorch-image-new-key") or item.conditional:
        return
    first = next(each for each in subject.trace.invocations if each.program == item.program and each.has("update"))
    if first.order == item.order and not _NEW_KEY.search(subject.document.text):
        yield raised("image-old-key", item.line, image=image.name[:80])


def _lacks(subject: Subject, item: Invocation) -> Iterator[Raised]:
    """A program that the base image does not have, and that no command before it brings."""
    docker = subject.document.dialect is Dialect.DOCKERFILE and not item.conditional
    row = next((each for each in script_rules().image_lacks if docker and item.program in each.programs), None)
    image = image_of(subject, item) if row is not None else None
    if row is None or image is None or not image.known or not _compiled(row.image).search(image.name):
        return
    before = subject.trace.before(item)
    own = [each for each in before if each.program in row.programs]  # told at the first
    copied = re.search(r"(?m)^\s*(?:COPY\s+--from|ADD\s)|^\s*ENV\s+PATH", subject.document.text)
    if not own and not copied and not any(_compiled(row.brought).search(each.text) for each in before):
        yield raised("image-lacks", item.line, program=item.program, image=image.name[:80], instead=row.instead)


def _rows(subject: Subject) -> Iterator[Raised]:
    """Every row of this language, on every line that is no comment."""
    kind = subject.document.dialect.value
    rows = [row for row in script_rules().line if kind in row.dialects]
    rows = [row for row in rows if not row.unless or not _compiled(row.unless).search(subject.document.text)]
    rows = [row for row in rows if not row.needs or _compiled(row.needs).search(subject.document.text)]
    rows = [row for row in rows if row.below is None or any(card < row.below for card in subject.gpus)]
    told: set[tuple[str, str]] = set()
    seen: set[str] = set()  # the same line again says nothing new
    for number, line in enumerate(subject.document.lines, start=1) if rows else ():
        text = line[:1000]
        if text in seen or number in subject.trace.excluded or re.match(r"\s*(?:#|REM\b|::)", text):
            continue
        seen.add(text)
        for row in rows:
            found = _compiled(row.pattern).search(text)
            said = found.group(1) if found and found.re.groups else ""
            if found and (row.rule, said) not in told:
                told.add((row.rule, said))
                right = line.replace(said, row.instead, 1) if row.instead and said else None
                fields = {"what": said, "instead": row.instead, "why": row.why}
                yield Raised(
                    rule=row.rule, line=number, fields=fields, corrected=right, certain=False, source=row.source
                )


# What looks for something in the folder that it is started in.
_HERE = re.compile(
    r"(?:^|\s)(?:\.{1,2}(?:/|\s|\[|$)|-r\s+[\w.]|c?make\b|ninja\b|git\s+[a-z]|python\S*\s+[\w.]|bash\s+\w)"
)


def _lost(subject: Subject) -> Iterator[Raised]:
    """`RUN cd x` and `RUN export X=1`, alone: gone with the shell that ran them."""
    trace = subject.trace
    for scope in trace.scopes:
        if not re.match(r"run \d|step", scope.label):
            continue
        items = [each for each in trace.invocations if each.scope == scope.number]
        given = [each for each in trace.assignments if each.scope == scope.number and each.how == "environment"]
        text = items[0].text if items else ""
        if len(items) == 1 and re.fullmatch(r"cd\s+\S+", text):
            folder = joined(items[0].directory, items[0].words[1].text)
            same = [e for e in trace.after(items[0]) if subject.stage(e.scope) == subject.stage(scope.number)]
            if folder != items[0].directory and any(_HERE.search(e.text) and e.directory != folder for e in same):
                yield raised("folder-lost", items[0].line, what=text)
        elif given and not items and scope.label != "step":
            yield raised("export-lost", given[0].line, what=given[0].text[:80])


def _options(item: Invocation) -> Iterator[Raised]:
    """`--inde-url`: pip takes the beginning of an option, and nothing that only looks like one."""
    words = item.arguments
    pip = item.program == "pip" or (item.program in ("python", "py") and "pip" in words[:3])
    if not pip or "install" not in words:
        return
    for word in item.words[1:]:
        name = word.text.partition("=")[0]
        near = option_meant(name)
        if near != name and "$" not in name:
            yield raised("option-misspelt", word.line, option=name, near=near)
        elif name in ("-y", "--yes", "--assume-yes") and not item.conditional:
            yield raised("option-of-others", word.line, option=name)


def _managed(subject: Subject, item: Invocation) -> Iterator[Raised]:
    """pip of a distribution that keeps its Python to itself."""
    image = image_of(subject, item)
    if image is None or not image.known or item.program not in ("pip", "python") or "install" not in item.arguments:
        return
    found = image_system(image.name)
    first = _MANAGED_FROM.get(found[0].id) if found else None
    if found is None or first is None or float(found[1]) < first or subject.system_python(image) is None:
        return
    if environment_python(subject, item) is not None:
        return  # it has another Python
    text = subject.document.text
    loose = re.search(r"(?i)venv|virtualenv|EXTERNALLY-MANAGED|break.system.packages|python:\d|pipx|--target", text)
    installs = item.program == "pip" or "pip" in item.arguments
    if not loose and installs and not any(each.startswith(".") for each in item.arguments[-1:]):
        yield raised("python-managed", item.line, image=image.name, system=f"{found[0].id} {found[1]}")


def _get_pip(subject: Subject, item: Invocation) -> Iterator[Raised]:
    """get-pip.py itself serves the Pythons of today; older ones have a copy of their own."""
    words = " ".join(item.arguments)
    if not re.search(r"bootstrap\.pypa\.io/(?:pip/)?get-pip\.py", words):
        return
    image = image_of(subject, item)
    known = python_of(subject, item)
    own = str(known.version) if known else subject.system_python(image) if image is not None and image.known else None
    first = since("get-pip")
    if own is not None and Version(own) < first:
        yield raised("get-pip-too-new", item.line, python=own, first=first)


def _in_the_tree(subject: Subject, item: Invocation) -> Iterator[Raised]:
    """`import torch` beside the folder `torch` of the sources finds that one, which has no compiled part."""
    code = " ".join(item.arguments)
    if item.program != "python" or not re.search(r"-c\b.*\bimport torch\b|-m torch\b", code, re.DOTALL):
        return
    built = [step for step in subject.torch_builds if step.item.order < item.order and step.how in ("setup.py", "pip")]
    inside = [step for step in built if step.item.directory == item.directory and item.directory is not None]
    if inside and not inside[-1].item.has("develop", "-e", "--editable", "--inplace"):
        yield raised("torch-in-the-tree", item.line, folder=(item.directory or "")[-40:])


def _paths(subject: Subject) -> Iterator[Raised]:
    """PATH that is replaced and not added to: the programs of the system are gone."""
    if subject.document.dialect in LISTS:
        return
    for item in subject.trace.assignments:
        if item.name.upper() != "PATH" or item.how != "environment" or not item.value or item.appended:
            continue
        if item.known and not _SYSTEM_PATHS.search(item.raw) and not _SYSTEM_PATHS.search(item.value):
            kept = "%PATH%" if item.dialect is Dialect.BATCH else "$env:PATH" if item.dialect.windows else "$PATH"
            yield raised("path-replaced", item.line, kept=kept)


def _bytes(subject: Subject) -> Iterator[Raised]:
    """cmd compares numbers of more than 31 bits as texts, and a memory in bytes is one."""
    text = subject.document.text if subject.document.dialect is Dialect.BATCH else ""
    names = {name.upper() for name in re.findall(r"(?i)TotalPhysicalMemory[^\n]{0,200}\bset \"?(\w{1,60})=", text)}
    for number, line in enumerate(subject.document.lines, start=1) if names else ():
        used = re.match(r"(?i)\s*if\s.{0,200}?[%!](\w{1,60})[%!]\"?\s+(?:LSS|LEQ|GTR|GEQ)\s", line[:400])
        if used and used[1].upper() in names and not re.search(r"\d{10}", line):
            yield raised("number-as-text", number, what=used[1])
