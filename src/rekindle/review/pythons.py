"""Which Python a script runs: the environment it makes, the action it uses, the image it stands on."""

from __future__ import annotations

import re

from rekindle.knowledge.torch.projects import image_python
from rekindle.knowledge.torch.releases import newest_python
from rekindle.review.builds import kept
from rekindle.review.packages import CONDAS
from rekindle.review.subject import Known, Subject
from rekindle.review.trace import Image, Invocation

_IN_IMAGE = re.compile(r"(?:^|/)python:(?:rc-)?(3\.\d{1,3}t?)|(?:^|/)uv:(?:[\d.]+-)?python(3\.\d{1,3}t?)")
# `ln -s /usr/bin/python3.7 /usr/bin/python`, `update-alternatives --install … python3 /usr/bin/python3.9 1`.
_LINKS = ("ln", "update-alternatives")
_LINKED = re.compile(r"/python(3\.\d{1,3})(?: \S*/python3?| \d+)?\Z")
_INSTALLERS = ("winget", "choco", "scoop", "brew")
# `Python.Python.3.12`, `python --version=3.11.9`, `python312`, `python@3.12`.
_INSTALLED = re.compile(r"(?i)\bpython(?:\.python\.|@|3?(?: -\S+)* --version[ =])(3\.\d{1,3})|\bpython(3)(\d{1,2})\b")
# `3` and `3.x` of an action; of the official image also no number at all, with or without its system.
_NEWEST = re.compile(
    r"3(?:\.x)?|x|(?:\S*/)?python(?::(?:3|latest|slim|bookworm|trixie)(?:-(?:slim|bookworm|trixie))*)?"
)


def python_of(subject: Subject, item: Invocation | None = None) -> Known | None:
    """The Python that the script chooses, for a command or at its end: that of the environment, else the one named."""
    told = subject.asked.place.python if subject.asked.place else None
    return environment_python(subject, item) or (Known.python(told, 1) if told else _pythons(subject)[1])


def environment_python(subject: Subject, item: Invocation | None = None) -> Known | None:
    """The Python of the environment that the script makes: of its stage, its job or its image, before the command."""
    every = _pythons(subject)[0]
    if item is not None:
        around = {scope.number for scope in subject.trace.scopes[subject.stage(item.scope)].chain()}
        every = [each for each in every if subject.stage(each[1]) in around]
        every = [each for each in every if each[0] <= item.order] or every
    return max(every, key=lambda each: each[0])[2] if every else None


@kept
def _pythons(subject: Subject) -> tuple[list[tuple[int, int, Known]], Known | None]:
    """The Pythons of the environments that are made, with their order and scope, and one that is only named."""
    made: list[tuple[int, int, Known]] = []
    named: list[Known] = []
    for item in subject.trace.invocations:
        text = " ".join(word.text for word in item.words)
        match = re.match(r"\S*?\bpython(3\.\d{1,3}t?)(?:\.exe)?\b|\S*?\bpy\s+-(3\.\d{1,3}t?)\b", text)
        if match and item.program in ("python", "py"):
            known = Known.python(match[1] or match[2], item.line)
            if re.search(r"-m (?:venv|virtualenv)\b", text):
                made.append((item.order, item.scope, known))
            elif not item.has("-V", "--version"):
                named.append(known)
        if item.program in CONDAS and re.search(r"\b(?:create|install)\b", text):
            match = re.search(r"\bpython\s*==?\s*(3\.\d{1,3})", text)
            if match:
                made.append((item.order, item.scope, Known.python(match[1], item.line)))
        if item.program in _INSTALLERS and (match := _INSTALLED.search(text[:500])):
            named.append(Known.python(match[1] or f"{match[2]}.{match[3]}", item.line))
        if item.program in _LINKS and (match := _LINKED.search(text[:500])):
            named.append(Known.python(match[1], item.line))
        if item.program in ("module", "ml") and (match := re.search(r"(?i)\bpython3?/(3\.\d{1,3})", text)):
            made.append((item.order, item.scope, Known.python(match[1], item.line)))
        if item.program in ("uv", "virtualenv"):
            match = re.search(
                r"(?:--python|-p)[ =](?:python)?(3\.\d{1,3}t?)|python (?:install|pin) (3\.\d{1,3}t?)", text
            )
            if match:
                made.append((item.order, item.scope, Known.python(match[1] or match[2], item.line)))
    for setting in subject.trace.assignments:
        if re.fullmatch(r"(?i)PYTHON(?:_?(?:EXE|EXECUTABLE|BIN|CMD))?", setting.name) and setting.known:
            match = re.search(r"(?i)\bpython(3)\.?(\d{1,2})\b", setting.value)
            named += [Known.python(f"{match[1]}.{match[2]}", setting.line)] if match else []
    for used in subject.trace.used:
        given = used.given.get("python-version")
        stated = _typed(*given) if given else None
        if "setup-python" in used.action and stated is not None:
            made.append((used.order, used.scope, stated))
    return made, named[0] if len({each.version for each in named}) == 1 else None


def python_at(subject: Subject, item: Invocation) -> Known | None:
    """The Python that the command itself or its image says; None where an environment decides, or nothing does."""
    text = " ".join(word.text for word in item.words)
    own = re.match(r"\S*?\b(?:python|pip)(3\.\d{1,3}t?)(?:\.exe)?\b|\S*?\bpy\s+-(3\.\d{1,3}t?)\b", text)
    if own:
        return Known.python(own[1] or own[2], item.line)
    image = image_of(subject, item) if environment_python(subject, item) is None else None
    if image is None or not image.known or any(subject.trace.ran("pyenv")):
        return None
    python = number_in(image) or (image_python(image.pytorchs) if image.pytorchs else None)
    return _typed(python or image.name, image.line)


def number_in(image: Image) -> str | None:
    """The Python that the name of an image says."""
    match = _IN_IMAGE.search(image.name)
    return (match[1] or match[2]) if match else None


def image_of(subject: Subject, item: Invocation) -> Image | None:
    """The base image that a command runs in."""
    found = [image for image in subject.trace.images if subject.sees(image.scope, item) and image.order <= item.order]
    return found[-1] if found else None


def _typed(text: str, line: int) -> Known | None:
    match = re.fullmatch(r"(3\.\d{1,3})(?:\.\d{1,9})?(t?)", text)
    if match is None and _NEWEST.fullmatch(text):
        return Known(newest_python(), line)
    return Known.python(match[1] + match[2], line) if match else None
