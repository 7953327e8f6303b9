"""The order of things: what is set too late, lost between steps, never activated; the source and its submodules."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from rekindle.core.version import Version
from rekindle.review.builds import ScriptBuild
from rekindle.review.document import Dialect
from rekindle.review.remark import Raised, raised
from rekindle.review.subject import Subject
from rekindle.review.trace import Invocation

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
        yield from _activated(subject)
        yield from _conda(subject)
        yield from _background(subject)
        yield from _twice(subject)
        yield from _left_source(subject)
        yield from _not_filled_in(subject)
    else:
        yield from (found for found in _activated(subject) if found.rule == "environment-other")
    yield from _source(subject)
    yield from _jobs(subject)
    yield from _commands(subject)


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
        if subject.visible(item.name, last.item) is not None or any(own.name == item.name for own in last.item.prefix):
            continue
        if any(other.name == item.name and other.order < last.item.order for other in subject.trace.assignments):
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
            if item.how != "shell" or item.dialect is not Dialect.SHELL or not _READ_BY_BUILD.match(item.name):
                continue
            value = subject.visible(item.name, step.item)
            if value is None or value.exported or value.order != item.order or not item.value:
                continue
            if re.search(rf"(?m)^\s*(?:set -a\b|set -o allexport|export\b.*\b{item.name}\b)", subject.document.text):
                continue
            if re.search(rf"\$\{{?{item.name}\b", subject.document.text) and not item.name.startswith(
                ("TORCH_CUDA", "MAX_JOBS")
            ):
                continue
            yield raised("not-exported", item.line, name=item.name, corrected=_exported(subject, item.line, item.name))
        break


def _exported(subject: Subject, line: int, name: str) -> str | None:
    text = subject.document.line(line)
    return re.sub(rf"^(\s*)({name}=)", r"\1export \2", text) if re.match(rf"\s*{name}=", text) else None


def _activated(subject: Subject) -> Iterator[Raised]:
    """An environment that is made, and python or pip used without it."""
    for item in subject.trace.invocations:
        env = _made(item)
        if env is None or not item.reached:
            continue
        short = re.split(r"[\\/]", env.rstrip("\\/"))[-1]
        later = [each for each in subject.trace.invocations if each.order > item.order and each.reached]
        other = _entered(later)
        if (
            other is not None
            and short not in other
            and re.fullmatch(r"[\w.-]+", short)
            and not _made_elsewhere(subject, other)
        ):
            yield raised("environment-other", item.line, env=short, other=other)
            return
        if _enters(subject, later, env, short, item):
            continue
        used = next((each for each in later if each.program in ("pip", "python") and _bare(each)), None)
        if used is not None and subject.document.dialect is not Dialect.WORKFLOW:
            yield raised("environment-not-activated", item.line, env=short or env, line_used=used.line)
            return


def _made(item: Invocation) -> str | None:
    words = item.arguments
    if "-m" in words and words.index("-m") + 1 < len(words) and words[words.index("-m") + 1] in ("venv", "virtualenv"):
        rest = [word for word in words[words.index("-m") + 2 :] if not word.startswith("-")]
        return rest[-1] if rest else None
    if item.program == "virtualenv":
        rest = [word for word in words if not word.startswith("-")]
        return rest[-1] if rest else None
    if item.program in ("conda", "mamba", "micromamba") and "create" in words:
        for option in ("-n", "--name", "-p", "--prefix"):
            if option in words and words.index(option) + 1 < len(words):
                return words[words.index(option) + 1]
    return None


def _enters(subject: Subject, later: list[Invocation], env: str, short: str, made: Invocation) -> bool:
    for each in later:
        text = each.text + " " + " ".join(word.text for word in each.words)
        if (
            each.program in ("activate", "activate.bat", "activate.ps1", "activate.fish")
            or "activate" in each.arguments
        ):
            return True
        if re.search(r"(?i)[\\/](?:bin|scripts)[\\/](?:python|pip|activate)", text) and (short in text or env in text):
            return True
        if (
            re.search(r"(?:conda|mamba|micromamba) run\b|\buv pip\b|\buv sync\b|\buv run\b", text)
            or each.program == "uv"
        ):
            return True
    used = next((each for each in later if each.program in ("pip", "python") and _bare(each)), None)
    path = subject.visible("PATH", used) if used is not None else None
    if path is not None and path.order > 0 and (short in path.text or env in path.text) and path.line != made.line:
        return True
    return bool(
        re.search(
            r"(?i)\bactivate\b",
            "\n".join(line for line in subject.document.lines if not re.match(r"\s*(?:#|rem|::)", line, re.IGNORECASE)),
        )
    )


def _entered(later: list[Invocation]) -> str | None:
    """The environment that is activated next, by its plain name; None when it is not said plainly."""
    for each in later:
        text = each.words[0].text
        if each.program in ("activate", "activate.bat", "activate.ps1") and re.search(
            r"[\\/](?:bin|Scripts)[\\/]", text
        ):
            parts = [part for part in re.split(r"[\\/]", text) if part]
            name = parts[-3] if len(parts) > 2 else ""
            return name if re.fullmatch(r"[\w.-]+", name) else None
        if (
            each.program in ("conda", "mamba", "micromamba")
            and each.arguments[:1] == ("activate",)
            and len(each.arguments) > 1
        ):
            name = each.arguments[1]
            return name if re.fullmatch(r"[\w.-]+", name) else None
    return None


def _made_elsewhere(subject: Subject, name: str) -> bool:
    made = [_made(item) for item in subject.trace.invocations]
    return any(env is not None and re.split(r"[\\/]", env.rstrip("\\/"))[-1] == name for env in made)


def _bare(item: Invocation) -> bool:
    """`pip`, not `/env/bin/pip`; and not what makes the environment itself."""
    return (
        not re.search(r"[\\/$%{]", item.words[0].raw)
        and "venv" not in item.arguments
        and "virtualenv" not in item.arguments
    )


def _conda(subject: Subject) -> Iterator[Raised]:
    if subject.document.dialect is not Dialect.SHELL:
        return
    text = subject.document.text
    if re.search(
        r"conda\.sh|shell\.(?:bash|zsh|posix) hook|conda init|micromamba shell|bash -[il]|#!.*bash.*-[il]\b"
        r"|miniconda\S*/bin/activate",
        text,
    ):
        return
    for item in subject.trace.ran("conda", "mamba"):
        if item.arguments[:1] == ("activate",) and item.reached:
            yield raised("conda-not-initialised", item.line)
            return


def _background(subject: Subject) -> Iterator[Raised]:
    """A build that goes on in the background while the next one starts in the same folder."""
    builds = _real(subject)
    for step, following in pairwise(builds):
        waits = any(step.item.order < item.order < following.item.order for item in subject.trace.ran("wait"))
        lines = subject.document.line(step.item.last).rstrip()
        if (
            lines.endswith("&")
            and not lines.endswith("&&")
            and step.item.directory == following.item.directory
            and not waits
        ):
            yield raised("background", step.line, build=following.line)


def _twice(subject: Subject) -> Iterator[Raised]:
    """`cd x` in the folder x that was just entered."""
    cloned = {clone[1] for item in subject.trace.ran("git") if (clone := subject.cloned(item))}
    for item in subject.trace.ran("cd", "set-location"):
        target = item.arguments[-1].rstrip("\\/") if item.arguments else ""
        here = re.split(r"[\\/]", (item.directory or "").rstrip("\\/"))[-1]
        if target and target == here and target.lower() in cloned and item.reached:
            yield raised("cd-twice", item.line, folder=target)
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
        was = re.split(r"[\\/]", last.directory.rstrip("\\/"))[-1].lower()
        entered = was in subject.torch_folders or was == "pytorch"
        now = re.split(r"[\\/]", step.item.directory.rstrip("\\/"))[-1].lower()
        if entered and now != was and now not in subject.torch_folders and now != "pytorch":
            yield raised("left-source", last.line, command=step.item.text[:60], build=step.line)
            break
    for item in subject.trace.ran("ninja"):
        folder = re.split(r"[\\/]", (item.directory or "").rstrip("\\/"))[-1].lower()
        before = [
            each
            for each in subject.trace.ran("cmake", "meson", "python")
            if each.order < item.order and (each.program != "python" or "setup.py" in each.arguments)
        ]
        asks = any(word.startswith(("--version", "-C", "-h", "-t")) for word in item.arguments)
        if (folder == "pytorch" or folder in subject.torch_folders) and not before and not asks:
            yield raised("ninja-unconfigured", item.line)
            return


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
        tag = next((word for word in words if re.match(r"(?:tags/)?v?\d+\.\d+", word)), str(known.version))
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
            heavy = (step.what == "torch" and not _cpu_only(subject, step)) or step.heavy
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


def _cpu_only(subject: Subject, step: ScriptBuild) -> bool:
    use, old = subject.visible("USE_CUDA", step.item), subject.visible("NO_CUDA", step.item)
    return (use is not None and use.text.upper() in ("0", "OFF")) or (old is not None and old.text == "1")


def _commands(subject: Subject) -> Iterator[Raised]:
    for step in subject.torch_builds:
        torch = subject.torch_at(step.item)
        if step.how == "setup.py" and torch and torch.version.major_minor >= Version("2.14"):
            yield raised("setup-py-gone", step.line, torch=torch.version)
    for item in subject.trace.invocations:
        torch = subject.torch_at(item)
        if "setup.py" in item.arguments and "--help" in item.arguments:
            late = torch is not None and torch.version.major_minor >= Version("2.14")
            yield raised("setup-py-gone" if late else "setup-help", item.line, torch=torch.version if torch else "")
    configures = [step for step in subject.torch_builds if step.how == "cmake"]
    wheels = [step for step in subject.builds if step.makes_wheel and step.what in ("torch", "extension")]
    if configures and (not wheels or (subject.notes and len(wheels) < len(configures))):
        yield raised("libtorch-only", configures[0].line)
