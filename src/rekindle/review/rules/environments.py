"""Environments: made and never activated, another one activated, a Python that torch or the environment lacks."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rekindle.compat.judgement import Clash
from rekindle.compat.torch_python import takes
from rekindle.core.version import Version
from rekindle.review.document import LISTS, Dialect
from rekindle.review.environment import entered, environments_of, made
from rekindle.review.pythons import environment_python, image_of, number_in, python_at, python_of
from rekindle.review.remark import Raised, raised
from rekindle.review.subject import Known, Subject
from rekindle.review.trace import Invocation, last_part


def check(subject: Subject) -> Iterator[Raised]:
    yield from _carried(subject)
    yield from _python(subject)
    if subject.document.dialect in LISTS:
        return  # what reads the list makes the environment and works in it
    if subject.notes:
        said = subject.says("(?i)activate")  # in words, where no block has it
        yield from (found for found in _activated(subject) if found.rule == "environment-other" or not said)
        yield from _not_made(subject)
        return
    yield from _not_made(subject)
    yield from _activated(subject)
    yield from _uv_outside(subject)
    yield from _uv_run(subject)
    yield from _other_python(subject)


def _python(subject: Subject) -> Iterator[Raised]:
    told: set[tuple[Version, Version]] = set()
    for torch, python, system, wheel in _met(subject):
        answer = takes(str(torch), str(python), system)
        key = (python.version, torch)
        if not isinstance(answer, Clash) or key in told:
            continue
        told.add(key)
        near = next((f". {each.text}" for each in answer.changes if each.what == "torch"), "")
        yield raised(
            "python-not-supported", python.line, torch=torch, python=python, sentence=answer.sentence,
            wheel=f"; {wheel}{near}" if wheel else "", source=answer.source,
        )  # fmt: skip


_NO_WHEEL = "pip ends with: No matching distribution found"


def _met(subject: Subject) -> Iterator[tuple[Version, Known, str, str]]:
    """Where a release meets a Python: the two, the system, and how an installer that has to find a wheel ends."""
    step = next(iter(subject.torch_builds), None)
    torch, python = subject.torch_at(step.item) if step else None, python_of(subject, step.item) if step else None
    if step is not None and torch is not None and python is not None:
        yield torch.version, python, subject.system(step.item), ""
    for found in subject.installs:
        number = found.torch.exact if found.torch is not None else None
        own, told = python_of(subject, found.item), subject.asked.place.python if subject.asked.place else None
        if told and found.torch is not None and environment_python(subject, found.item) is None:
            own = Known.python(told, found.torch.line)  # nothing in the script says it
        at = python_at(subject, found.item) if found.verb == "install" and found.tool != "conda" else None
        for each in (at, own):
            if number is not None and each is not None:
                yield number, each, subject.system(found.item), _NO_WHEEL if found.tool != "conda" else ""
    for newest in environments_of(subject).every:
        if newest.kind == "wheel" and newest.version and newest.python:
            yield Version(newest.version), Known.python(newest.python, newest.line), newest.system, _NO_WHEEL
    for build in subject.torch_builds:
        built, known = subject.torch_at(build.item), python_at(subject, build.item)
        if built is not None and known is not None:
            yield built.version, known, subject.system(build.item), ""
    yield from _allowed(subject)


def _allowed(subject: Subject) -> Iterator[tuple[Version, Known, str, str]]:
    """The Pythons that a project allows: what is locked for all of them needs each, else one is enough."""
    admitted = subject.trace.admitted
    for found in subject.installs if admitted is not None else ():
        number, system = found.torch.exact if found.torch is not None else None, subject.system(found.item)
        if admitted is None or number is None or (found.torch and found.torch.marker):
            continue
        without = [each for each in admitted.pythons if isinstance(takes(str(number), each, system), Clash)]
        # Nothing that locks minds a Python that is too new: the metadata of a wheel names the oldest alone.
        if without[:1] == [admitted.pythons[0]] and (admitted.every or len(without) == len(admitted.pythons)):
            ends = f"uv and poetry find no solution while the project allows {without[0]}"
            yield number, Known.python(without[0], admitted.line), system, ends if admitted.every else _NO_WHEEL


def _activated(subject: Subject) -> Iterator[Raised]:
    """An environment that is made, and python or pip used without it."""
    every = _made(subject)
    for item in subject.trace.invocations:
        env = made(item)
        if not env or not item.reached or item.program in ("uv", "mkvirtualenv"):
            continue
        short = last_part(env)
        later = [each for each in subject.trace.after(item) if each.reached]
        other = next((into for each in later if (into := entered(each))), None)
        plain = other is not None and re.fullmatch(r"[\w.-]+", short) and re.fullmatch(r"[\w.-]+", other)
        if other is not None and plain and short not in other and not {"", other} & every:
            yield raised("environment-other", item.line, env=short, other=other)
            return
        if _enters(subject, later, env, short, item):
            yield from _build_outside(subject, later, env, short)
            continue
        used = next((each for each in later if each.program in ("pip", "python") and _bare(each)), None)
        if used is not None and subject.document.dialect is not Dialect.WORKFLOW:
            yield raised("environment-not-activated", item.line, env=short or env, line_used=used.line)
            return


_MAKES = re.compile(
    r"(?i)env create|\bcreate\b|virtualenv|\bvenv\s+\S|uv sync|conda-pack|clone|COPY --from|tar\s+-?\w*x|setup-m"
)


def _made(subject: Subject) -> frozenset[str]:
    """The names of the environments that the script makes; an empty one stands for any."""
    return frozenset(last_part(env) for item in subject.trace.invocations if (env := made(item)) is not None)


def _not_made(subject: Subject) -> Iterator[Raised]:
    """An environment that is entered, and that no command makes. A fresh image or runner has none of its own."""
    dialect, text, every = subject.document.dialect, subject.document.text, _made(subject)
    for item in subject.trace.invocations:
        name = entered(item) if item.reached and not item.conditional else None
        if not name or name in ("base", "root") or not re.fullmatch(r"[\w.-]+", name) or {"", name} & every:
            continue
        if dialect.unattended and not _MAKES.search(text) and "self-hosted" not in text:
            yield raised("environment-not-there", item.line, env=name)
            return
        later = [found for found in subject.installs if found.item.order > item.order and found.torch is not None]
        if later and not dialect.unattended and not subject.lies_beside(f"{name}/pyvenv.cfg", item):
            yield raised("environment-not-made", item.line, env=name)
            return


_NO_UV_PLACE = re.compile(r"(?:^|/)(?:python|ubuntu|debian|nvidia/cuda|pytorch/pytorch|astral-sh/uv)(?::|$)")


def _uv_outside(subject: Subject) -> Iterator[Raised]:
    """`uv pip install` where no environment is made yet: uv takes the system's Python only when it is told so."""
    syncs = (("sync",), ("add",), ("run",))
    places = [
        item
        for item in subject.trace.invocations
        if made(item) is not None or entered(item) or (item.program == "uv" and item.arguments[:1] in syncs)
    ]
    for found in subject.installs:
        item = found.item
        told = found.environment or found.has("--system", "--python", "-p", "--target", "--prefix")
        names = ("UV_SYSTEM_PYTHON", "VIRTUAL_ENV", "UV_PYTHON", "CONDA_PREFIX", "UV_PROJECT_ENVIRONMENT")
        if item.program != "uv" or item.arguments[:1] != ("pip",) or told or item.conditional or item.listed:
            continue
        if any(place.order < item.order for place in places) or any(subject.visible(name, item) for name in names):
            return
        image = image_of(subject, item)
        hosted = subject.document.dialect is Dialect.WORKFLOW and image is None
        hosted = hosted and not subject.says(r"activate-environment|setup-m\w+conda|self-hosted")
        apart = subject.document.dialect is Dialect.MAKEFILE  # each target begins where somebody calls it
        if (places and not apart) or hosted or (image is not None and image.known and _NO_UV_PLACE.search(image.name)):
            yield raised("uv-no-environment", item.line)
        return


_SYNCS = re.compile(r"(?:^|[\s;&|])uv run\b(?!.*--(?:no-sync|no-project|isolated)\b)")


def _uv_run(subject: Subject) -> Iterator[Raised]:
    """`uv run` puts the project's environment back to what its lock says, whatever `uv pip` put beside it."""
    projects = [item for item in subject.trace.invocations if item.program == "uv" and item.arguments[:1] == ("sync",)]
    pips = [found.item for found in subject.installs if found.item.arguments[:1] == ("pip",) and found.torch]
    put = [item for item in pips if item.program == "uv" and any(sync.order < item.order for sync in projects)]
    for item in subject.trace.invocations:
        before = [each for each in put if each.order < item.order]
        if before and _SYNCS.search(item.text) and not subject.visible("UV_NO_SYNC", item):
            yield raised("uv-run-syncs", item.line, line_put=before[-1].line)
            return


def _build_outside(subject: Subject, later: list[Invocation], env: str, short: str) -> Iterator[Raised]:
    """The environment's own pip installs, by its path, and the build is started with the system's Python."""
    if any(_activates(each) for each in later) or _on_path(subject, later, env, short) or _runs_in(subject, later):
        return
    own = [each for each in later if _by_path(each, env, short)]
    for step in subject.builds:
        if own and step.item.order > own[0].order and step.item.program in ("python", "pip") and _bare(step.item):
            yield raised("environment-not-used", step.line, env=short or env, line_used=own[0].line)
            return


def _other_python(subject: Subject) -> Iterator[Raised]:
    """`python3.9 setup.py` where an environment with 3.11 is active."""
    own = environment_python(subject)
    if own is None:
        return
    for step in subject.builds:
        number = re.fullmatch(r"(?:python|pip)(3\.\d{1,3})(?:\.exe)?", step.item.words[0].text.lower())
        active = number and any(map(_activates, subject.trace.before(step.item)))
        if number and active and step.item.reached and Version(number[1]) != own.version:
            yield raised("python-other", step.line, python=number[1], made=own.version, line_made=own.line)
            return


def _enters(subject: Subject, later: list[Invocation], env: str, short: str, made: Invocation) -> bool:
    if any(_activates(each) or _by_path(each, env, short) for each in later) or _runs_in(subject, later):
        return True
    said = subject.says(r"(?im)^(?![ \t]*(?:#|rem|::)).*\bactivate\b")
    return said or _on_path(subject, later, env, short, made)


def _activates(item: Invocation) -> bool:
    return item.program in ("activate", "activate.bat", "activate.ps1", "activate.fish") or "activate" in item.arguments


def _by_path(item: Invocation, env: str, short: str) -> bool:
    """`env/bin/pip`: a program of the environment, by its path."""
    text = item.text + " " + " ".join(word.text for word in item.words)
    inside = re.search(r"(?i)[\\/](?:bin|scripts)[\\/](?:python|pip|activate)", text)
    return inside is not None and (short in text or env in text)


def _runs_in(subject: Subject, later: list[Invocation]) -> bool:
    """Something else enters it: `conda run`, uv, or the SHELL of a Dockerfile."""
    shell = r"(?m)^[ \t]*SHELL\s*\[.*(?:conda|mamba)\W+run|^[ \t]*SHELL\s*\[.*activate"
    if subject.document.dialect is Dialect.DOCKERFILE and subject.says(shell):
        return True
    runs = re.compile(r"(?:conda|mamba|micromamba) run\b|\buv (?:pip|sync|run)\b")
    return any(each.program == "uv" or runs.search(each.text) for each in later)


def _on_path(subject: Subject, later: list[Invocation], env: str, short: str, made: Invocation | None = None) -> bool:
    """Its folder is put on PATH before the first plain `pip` or `python`."""
    used = next((each for each in later if each.program in ("pip", "python") and _bare(each)), None)
    path = subject.visible("PATH", used) if used is not None else None
    if path is None or path.order <= 0 or (made is not None and path.line == made.line):
        return False
    inside = re.search(rf"(?i)[\\/]{re.escape(short)}[\\/](?:bin|scripts)\b", path.text) if short else None
    return inside is not None or env in path.text


def _bare(item: Invocation) -> bool:
    """`pip`, not `/env/bin/pip`; and not what makes the environment itself."""
    return not re.search(r"[\\/$%{]", item.words[0].raw) and not {"venv", "virtualenv"} & {*item.arguments}


def _carried(subject: Subject) -> Iterator[Raised]:
    """An environment that is copied into an image with another Python: its own `python` is a link."""
    if subject.says(r"uv python|UV_PYTHON|ln -s|--copies|conda|mamba|COPY --from=\S+ /usr/local(?:/lib|/bin)?/? "):
        return
    for copied in subject.trace.copies:
        pythons = [_in_last_image(subject, scope) for scope in (copied.origin, copied.scope)]
        if None not in pythons and pythons[0] != pythons[1]:
            yield raised("environment-other-python", copied.line, made=pythons[0], here=pythons[1])


def _in_last_image(subject: Subject, scope: int) -> str | None:
    chain = {each.number for each in subject.trace.scopes[scope].chain()}
    image = next((each for each in reversed(subject.trace.images) if each.scope in chain and each.known), None)
    return subject.system_python(image) or number_in(image) if image is not None else None
