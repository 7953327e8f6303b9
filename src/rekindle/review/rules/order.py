"""The order of things: what is set too late or lost between steps; the source and its submodules."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rekindle.compat.judgement import Clash
from rekindle.compat.package import runs_on
from rekindle.knowledge.builds.limits import since
from rekindle.review.builds import ScriptBuild
from rekindle.review.document import Dialect
from rekindle.review.environment import environments_of
from rekindle.review.judging import ready_made
from rekindle.review.remark import Raised, raised
from rekindle.review.subject import Subject
from rekindle.review.trace import Assignment, Invocation, last_part

_READ_BY_BUILD = re.compile(
    r"(?:TORCH_CUDA_ARCH_LIST|MAX_JOBS|FORCE_CUDA|USE_[A-Z0-9_]+|BUILD_[A-Z0-9_]+|CUDA_HOME|CUDA_PATH|CUDACXX|CC|CXX"
    r"|CUDAHOSTCXX|DISTUTILS_USE_SDK|TORCH_NVCC_FLAGS|CMAKE_[A-Z_]+|CUDNN_\w+|PYTORCH_BUILD_\w+|CUDAHOSTCXX)\Z"
)


def check(subject: Subject) -> Iterator[Raised]:
    if not subject.notes:
        yield from _too_late(subject)
        yield from _lost(subject)
        yield from _lasting(subject)
        yield from _not_exported(subject)
        yield from _background(subject)
        yield from _sudo(subject)
        yield from _left_source(subject)
        yield from _not_filled_in(subject)
    yield from _before_torch(subject)
    yield from _source(subject)
    yield from _jobs(subject)
    yield from _commands(subject)


def _before_torch(subject: Subject) -> Iterator[Raised]:
    """An extension imports torch while it is built; here torch comes after it, or with it."""
    made = environments_of(subject)
    for step in subject.builds:
        if step.what != "extension" or not step.certain or step.item.conditional or made.at(step.item) or subject.notes:
            continue
        later = next((each for each in made.every if each.order > step.item.order), None)
        if later is not None or (made.empty(step.item) and not step.isolated):
            when = f"torch is installed (line {later.line})" if later else "there is a torch in this environment"
            yield raised("torch-after-extension", step.line, name=step.name, when=when)
            return


def _real(subject: Subject) -> list[ScriptBuild]:
    return [step for step in subject.builds if step.what != "other" and step.item.reached]


def _too_late(subject: Subject) -> Iterator[Raised]:
    builds = _real(subject)
    if not builds:
        return
    docker = ". In a Dockerfile put the ENV above the RUN" if subject.document.dialect is Dialect.DOCKERFILE else ""
    told: set[str] = set()
    for item in subject.trace.assignments:
        if item.how != "environment" or not _READ_BY_BUILD.match(item.name) or item.name in told or not item.value:
            continue
        if item.conditional:
            continue
        reaching = [step for step in builds if subject.sees(item.scope, step.item)]
        if not reaching or any(step.item.order > item.order for step in reaching):
            continue
        last = reaching[-1]
        seen = subject.visible(item.name, last.item)
        again = seen is not None and item.name == "TORCH_CUDA_ARCH_LIST" and item.known and seen.text != item.value
        if not again and (seen is not None or any(own.name == item.name for own in last.item.prefix)):
            continue
        earlier = any(other.name == item.name and other.order < last.item.order for other in subject.trace.assignments)
        if earlier and not again:
            continue
        told.add(item.name)
        rule = "architecture-after-build" if item.name == "TORCH_CUDA_ARCH_LIST" else "setting-after-build"
        if rule == "setting-after-build" and not re.match(
            r"(?:MAX_JOBS|FORCE_CUDA|USE_CUDA|CUDA_HOME|DISTUTILS_USE_SDK)\Z", item.name
        ):
            continue
        yield raised(rule, item.line, name=item.name, build=last.line, docker=docker)


def _lost(subject: Subject) -> Iterator[Raised]:
    """A RUN or a step that only exports or activates: the next one starts anew."""
    dialect = subject.document.dialect
    if dialect not in (Dialect.DOCKERFILE, Dialect.WORKFLOW):
        return
    unit = "RUN" if dialect is Dialect.DOCKERFILE else "step"
    instead = ". Use ENV" if unit == "RUN" else ". Use env: or $GITHUB_ENV"
    if unit == "RUN":
        yield from _activation_lost(subject)
    for step in _real(subject):
        for item in subject.trace.assignments:
            if item.how != "environment" or item.order > step.item.order or not _READ_BY_BUILD.match(item.name):
                continue
            label = subject.trace.scopes[item.scope].label
            inside = label.startswith("run") if unit == "RUN" else label == "step" and item.dialect is not None
            if not inside or subject.sees(item.scope, step.item) or subject.visible(item.name, step.item) is not None:
                continue
            if unit == "step" and (
                not item.text.startswith(("export", "$", "set")) and item.text == f"{item.name}: {item.raw}"
            ):
                continue
            if any(each.item.scope == item.scope for each in subject.builds) or not _same_job(
                subject, item.scope, step.item
            ):
                continue
            yield raised("run-lost", item.line, what=f"{item.name}", unit=unit, build=step.line, instead=instead)
            return


def _activation_lost(subject: Subject) -> Iterator[Raised]:
    """`RUN conda activate x` on its own."""
    for item in subject.trace.invocations:
        activates = item.program == "activate" or item.arguments[:1] == ("activate",)
        later = [each for each in subject.trace.invocations if each.order > item.order]
        if not activates or any(each.scope == item.scope for each in later):
            continue
        used = next((each for each in later if each.program in ("pip", "python")), None)
        if used is not None:
            yield raised(
                "run-lost", item.line, what="the activation", unit="RUN", build=used.line,
                instead=". Put the environment's bin folder on PATH with ENV, or use conda run",
            )  # fmt: skip
            return


def _same_job(subject: Subject, scope: int, item: Invocation) -> bool:
    parent = subject.trace.scopes[scope].parent
    return parent is not None and subject.sees(parent.number, item)


def _not_filled_in(subject: Subject) -> Iterator[Raised]:
    """ENV runs no commands, and `env:` of a workflow fills in no variables."""
    docker = subject.document.dialect is Dialect.DOCKERFILE
    if not docker and subject.document.dialect is not Dialect.WORKFLOW:
        return
    for item in subject.trace.assignments:
        label = subject.trace.scopes[item.scope].label
        if docker and not label.startswith("run") and re.search(r"\$\(|`", item.raw):
            yield raised("env-not-run", item.line, name=item.name, unit="ENV")
        elif (
            not docker
            and item.text == f"{item.name}: {item.raw}"
            and re.search(r"\$\(|\$\{?[A-Z_]+\b(?!\{)", item.raw.replace("${{", ""))
        ):
            yield raised("env-not-run", item.line, name=item.name, unit="env:")


def _lasting(subject: Subject) -> Iterator[Raised]:
    """setx, and variables of the user or the machine: for later sessions only."""
    found = [(item.name, item.line, item.order) for item in subject.trace.assignments if item.how == "lasting"]
    found += [(item.words[1].text, item.line, item.order) for item in subject.trace.ran("setx") if len(item.words) > 2]
    for name, line, order in found:
        step = next((step for step in _real(subject) if step.item.order > order), None)
        if step is not None and _READ_BY_BUILD.match(name) and subject.visible(name, step.item) is None:
            yield raised("lasting-only", line, name=name, build=step.line)


def _not_exported(subject: Subject) -> Iterator[Raised]:
    for step in _real(subject):
        for item in subject.trace.assignments:
            shells = (Dialect.SHELL, Dialect.POWERSHELL)
            if item.how != "shell" or item.dialect not in shells or not _READ_BY_BUILD.match(item.name):
                continue
            value = subject.visible(item.name, step.item)
            if value is None or value.exported or value.order != item.order or not item.value:
                continue
            if subject.says(rf"(?m)^[ \t]*(?:set -a\b|set -o allexport|export\b.*\b{item.name}\b)"):
                continue
            if not item.name.startswith(("TORCH_CUDA", "MAX_JOBS")) and subject.says(rf"\$\{{?{item.name}\b"):
                continue
            if item.dialect is Dialect.POWERSHELL and re.search(rf"(?i)\$\{{?{item.name}\b", _behind(subject, item)):
                continue
            rule = "not-exported" if item.dialect is Dialect.SHELL else "not-environment"
            yield raised(rule, item.line, name=item.name, corrected=_exported(subject, item.line, item.name))
        break


def _behind(subject: Subject, item: Assignment) -> str:
    """The script behind a setting."""
    return "\n".join(subject.document.lines[item.line :])


def _exported(subject: Subject, line: int, name: str) -> str | None:
    text = subject.document.line(line)
    shell = re.match(rf"(?i)(\s*)\$({name})(\s*=)", text)
    if shell:
        return f"{shell[1]}$env:{text[shell.start(2) :]}"
    return re.sub(rf"^(\s*)({name}=)", r"\1export \2", text) if re.match(rf"\s*{name}=", text) else None


def _background(subject: Subject) -> Iterator[Raised]:
    """A build that goes on in the background while the script goes on without it."""
    for step in _real(subject):
        later = [item for item in subject.trace.invocations if item.order > step.item.order and item.reached]
        uses = [item for item in later if item.program not in ("echo", "tail", "disown", "jobs", "printf")]
        waits = any(item.program == "wait" for item in later)
        if step.item.after == "&" and step.item.dialect is Dialect.SHELL and uses and not waits:
            yield raised("background-unwaited", step.line, line_after=uses[0].line)
            return


def _sudo(subject: Subject) -> Iterator[Raised]:
    """sudo starts the build with an environment of its own."""
    for step in _real(subject):
        if not re.match(r"(?:\w+=\S*\s+)*sudo\s", step.item.text) or re.search(
            r"\s(?:-\w*E\w*|--preserve-env\S*)\s", step.item.text
        ):
            continue
        names = {item.name for item in subject.trace.assignments if _READ_BY_BUILD.match(item.name)}
        lost = sorted(name for name in names if (value := subject.visible(name, step.item)) and value.exported)
        if lost:
            right = re.sub(r"\bsudo\s", "sudo -E ", subject.document.line(step.item.line), count=1)
            yield raised("sudo-environment", step.item.line, names=", ".join(lost[:4]), corrected=right, certain=False)
            return


def _left_source(subject: Subject) -> Iterator[Raised]:
    for step in subject.builds:
        if step.how != "setup.py" or not step.item.directory:
            continue
        moves = [
            item
            for item in subject.trace.invocations
            if item.program in ("cd", "chdir", "set-location", "popd") and item.order < step.item.order
        ]
        last = moves[-1] if moves else None
        if last is None or last.arguments[:1] not in (("..",), ("../",)) or last.directory is None:
            continue
        was = last_part(last.directory)
        entered = was in subject.torch_folders or was == "pytorch"
        now = last_part(step.item.directory)
        if entered and now != was and now not in subject.torch_folders and now != "pytorch":
            yield raised("left-source", last.line, command=step.item.text[:60], build=step.line)
            break


def _source(subject: Subject) -> Iterator[Raised]:
    updates = [
        item for item in subject.trace.ran("git")
        if "submodule" in item.arguments and ("update" in item.arguments or "foreach" in item.arguments)
    ]  # fmt: skip
    wanted = bool(subject.torch_builds) or subject.notes
    for item in subject.trace.ran("git"):
        words = item.arguments
        cloned = subject.cloned(item)
        if cloned is not None and cloned[0] == "pytorch/pytorch":
            recursive = any(word.startswith("--recurs") or word == "--recursive" for word in words)
            if not recursive and not any(each.order > item.order for each in updates) and wanted:
                line = subject.document.line(item.line)
                yield raised("clone-not-recursive", item.line, corrected=line.replace("clone", "clone --recursive", 1))
        if (
            not ({"checkout", "switch", "reset", "pull"} & set(words))
            or "submodule" in words
            or ("-b" in words and "checkout" in words)
        ):
            continue
        known = subject.checked_out_torch(item)
        if known is None or not wanted:
            continue
        if "--recurse-submodules" in words or any(each.order > item.order for each in updates):
            continue
        if any("submodule.recurse" in each.text for each in subject.trace.ran("git")):
            continue
        tag = next((word for word in words if re.match(r"(?:tags/)?v?\d{1,9}\.\d{1,9}", word)), str(known.version))
        yield raised("submodules-stale", item.line, tag=tag)
    for used in subject.trace.used:
        given = used.given.get("repository", ("", 0))[0].lower()
        if used.action == "actions/checkout" and given == "pytorch/pytorch" and wanted:
            modules = used.given.get("submodules", ("", 0))[0].lower()
            if modules not in ("recursive", "true") and not updates:
                yield raised("clone-not-recursive", used.line)


def _jobs(subject: Subject) -> Iterator[Raised]:
    told: set[int] = set()
    missing = False
    for step in subject.builds:
        if step.what == "other" or step.how == "cmake":
            continue
        value = subject.visible("MAX_JOBS", step.item)
        if value is None and subject.notes:
            continue
        if value is None:
            other = subject.visible("CMAKE_BUILD_PARALLEL_LEVEL", step.item)
            named = any(
                "MAX_JOBS" in line and not re.match(r"(?i)\s*(?:#|rem\b|::)", line) for line in subject.document.lines
            )
            heavy = (step.what == "torch" and not _cpu_only(subject, step)) or _compiled(subject, step)
            if heavy and other is None and not missing and not named and not subject.helper:
                missing = True
                yield raised("jobs-unset", step.line)
            continue
        if value.line in told or not value.known:
            continue
        told.add(value.line)
        text = value.text.strip()
        if not re.fullmatch(r"\d+", text) or int(text) == 0:
            if text and not re.search(r"[$%`(]", text):
                yield raised("jobs-unreadable", value.line, jobs=text)
        elif int(text) > 48:
            yield raised("jobs-absurd", value.line, jobs=text, memory=int(text) * 3)
    for item in subject.trace.invocations if not subject.notes else ():
        for word in item.words[1:]:
            match = re.fullmatch(r"-j\s*(\d+)", word.text)
            if match and int(match[1]) > 64 and item.program in ("ninja", "make", "cmake") and subject.torch_builds:
                yield raised("jobs-absurd", item.line, jobs=match[1], memory=int(match[1]) * 3)


def _compiled(subject: Subject, step: ScriptBuild) -> bool:
    """A heavy extension that is really compiled here: no wheel is there, and some card can use it."""
    useless = any(isinstance(runs_on(step.name, None, card), Clash) for card in subject.gpus)
    return step.heavy and not useless and not ready_made(subject, step)


def _cpu_only(subject: Subject, step: ScriptBuild) -> bool:
    use, old = subject.visible("USE_CUDA", step.item), subject.visible("NO_CUDA", step.item)
    return (use is not None and use.text.upper() in ("0", "OFF")) or (old is not None and old.text == "1")


def _commands(subject: Subject) -> Iterator[Raised]:
    for step in subject.torch_builds:
        torch = subject.torch_at(step.item)
        if step.how == "setup.py" and torch and torch.version.major_minor >= since("setup-py-gone"):
            yield raised("setup-py-gone", step.line, torch=torch.version)
    configures = [step for step in subject.torch_builds if step.how == "cmake"]
    wheels = [step for step in subject.builds if step.makes_wheel and step.what in ("torch", "extension")]
    if configures and (not wheels or (subject.notes and len(wheels) < len(configures))):
        yield raised("libtorch-only", configures[0].line)
