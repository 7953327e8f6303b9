"""The order of things: what is set too late or lost between steps; the source and its submodules."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rekindle.compat.judgement import Clash
from rekindle.compat.package import runs_on
from rekindle.knowledge.builds import script_rules
from rekindle.knowledge.builds.limits import since
from rekindle.review.builds import ScriptBuild
from rekindle.review.document import Dialect
from rekindle.review.environment import environments_of
from rekindle.review.judging import ready_made
from rekindle.review.remark import Raised, raised
from rekindle.review.rules.installs import pip_of_the_system
from rekindle.review.subject import Subject
from rekindle.review.trace import last_part

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
        if step.what != "extension" or not step.certain or step.item.conditional or made.at(step.item):
            continue
        # One command asks every project what it is before it installs any of them.
        at_once = not step.item.listed and (not step.isolated or pip_of_the_system(subject, step.item))
        first = step.item.order + (not at_once)
        later = next((each for each in made.every if each.order >= first), None)
        if subject.notes and not (later and (later.order < first + at_once or subject.follows(step.line, later.line))):
            continue
        if later is not None or (made.empty(step.item) and not step.isolated):
            when = f"torch is installed (line {later.line})" if later else "there is a torch in this environment"
            yield raised("torch-after-extension", step.line, name=step.name, when=when)
            return


def _too_late(subject: Subject) -> Iterator[Raised]:
    docker = ". In a Dockerfile put the ENV above the RUN" if subject.document.dialect is Dialect.DOCKERFILE else ""
    told: set[str] = set()
    for item in subject.trace.assignments if subject.reached_builds else ():
        if item.how != "environment" or item.name in told or not item.value or item.conditional:
            continue
        if not re.fullmatch(
            r"TORCH_CUDA_ARCH_LIST|MAX_JOBS|FORCE_CUDA|USE_CUDA|CUDA_HOME|DISTUTILS_USE_SDK", item.name
        ):
            continue
        reaching = [step for step in subject.reached_builds if subject.sees(item.scope, step.item)]
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
    for step in subject.reached_builds:
        for item in subject.trace.assignments:
            if item.how != "environment" or item.order > step.item.order or not _READ_BY_BUILD.match(item.name):
                continue
            scope = subject.trace.scopes[item.scope]
            if not scope.label.startswith(unit.lower()) or item.text == f"{item.name}: {item.raw}":
                continue
            same_job = scope.parent is not None and subject.sees(scope.parent.number, step.item)
            if not same_job or any(each.item.scope == item.scope for each in subject.builds):
                continue
            if not subject.sees(item.scope, step.item) and subject.visible(item.name, step.item) is None:
                yield raised("run-lost", item.line, what=item.name, unit=unit, build=step.line, instead=instead)
                return


def _activation_lost(subject: Subject) -> Iterator[Raised]:
    """`RUN conda activate x` on its own."""
    for item in subject.trace.invocations:
        activates = item.program == "activate" or item.arguments[:1] == ("activate",)
        later = subject.trace.after(item) if activates else []
        used = next((each for each in later if each.program in ("pip", "python")), None)
        if used is not None and not any(each.scope == item.scope for each in later):
            yield raised(
                "run-lost", item.line, what="the activation", unit="RUN", build=used.line,
                instead=". Put the environment's bin folder on PATH with ENV, or use conda run",
            )  # fmt: skip
            return


def _not_filled_in(subject: Subject) -> Iterator[Raised]:
    """ENV runs no commands, and `env:` of a workflow fills in no variables."""
    docker = subject.document.dialect is Dialect.DOCKERFILE
    if not docker and subject.document.dialect is not Dialect.WORKFLOW:
        return
    wrong = re.compile(r"\$\(|`" if docker else r"\$\(|\$\{?[A-Z_]+\b(?!\{)")
    for item in subject.trace.assignments:
        label = subject.trace.scopes[item.scope].label
        filled = label.startswith("run") if docker else item.text != f"{item.name}: {item.raw}"
        if not filled and wrong.search(item.raw if docker else item.raw.replace("${{", "")):
            yield raised("env-not-run", item.line, name=item.name, unit="ENV" if docker else "env:")


def _lasting(subject: Subject) -> Iterator[Raised]:
    """setx, and variables of the user or the machine: for later sessions only."""
    found = [(item.name, item.line, item.order) for item in subject.trace.assignments if item.how == "lasting"]
    found += [(item.words[1].text, item.line, item.order) for item in subject.trace.ran("setx") if len(item.words) > 2]
    for name, line, order in found:
        step = next((step for step in subject.reached_builds if step.item.order > order), None)
        if step is not None and _READ_BY_BUILD.match(name) and subject.visible(name, step.item) is None:
            yield raised("lasting-only", line, name=name, build=step.line)


def _not_exported(subject: Subject) -> Iterator[Raised]:
    rules = {Dialect.SHELL: "not-exported", Dialect.POWERSHELL: "not-environment"}
    for step in subject.reached_builds[:1]:
        for item in subject.trace.assignments:
            if item.how != "shell" or item.dialect not in rules or not _READ_BY_BUILD.match(item.name):
                continue
            name, value = item.name, subject.visible(item.name, step.item)
            if value is None or value.exported or value.order != item.order or not item.value:
                continue
            if subject.says(rf"(?m)^[ \t]*(?:set -a\b|set -o allexport|export\b.*\b{name}\b)"):
                continue
            if not name.startswith(("TORCH_CUDA", "MAX_JOBS")) and subject.says(rf"\$\{{?{name}\b"):
                continue
            behind = "\n".join(subject.document.lines[item.line :]) if item.dialect is Dialect.POWERSHELL else ""
            if not re.search(rf"(?i)\$\{{?{name}\b", behind):
                right = subject.rewritten(item.line, rf"(?i)^(\s*)\$({name}\s*=)", r"\1$env:\2")
                right = right or subject.rewritten(item.line, rf"^(\s*)({name}=)", r"\1export \2")
                yield raised(rules[item.dialect], item.line, name=name, corrected=right)


def _background(subject: Subject) -> Iterator[Raised]:
    """A build that goes on in the background while the script goes on without it."""
    for step in subject.reached_builds:
        aside = step.item.after == "&" and step.item.dialect is Dialect.SHELL
        later = [item for item in subject.trace.after(step.item) if item.reached] if aside else []
        uses = [item for item in later if item.program not in ("echo", "tail", "disown", "jobs", "printf")]
        if uses and not any(item.program == "wait" for item in later):
            yield raised("background-unwaited", step.line, line_after=uses[0].line)
            return


def _sudo(subject: Subject) -> Iterator[Raised]:
    """sudo starts the build with an environment of its own."""
    names = {item.name for item in subject.trace.assignments if _READ_BY_BUILD.match(item.name)}
    for step in subject.reached_builds:
        text, line = step.item.text, step.item.line
        if not re.match(r"(?:\w+=\S*\s+)*sudo\s", text) or re.search(r"\s(?:-\w*E\w*|--preserve-env\S*)\s", text):
            continue
        lost = sorted(name for name in names if (value := subject.visible(name, step.item)) and value.exported)
        if lost:
            right = subject.rewritten(line, r"\bsudo\s", "sudo -E ")
            yield raised("sudo-environment", line, names=", ".join(lost[:4]), corrected=right, certain=False)
            return


def _left_source(subject: Subject) -> Iterator[Raised]:
    folders = {"pytorch", *subject.torch_folders}
    for step in subject.builds:
        before = reversed(subject.trace.before(step.item))
        last = next((item for item in before if item.program in ("cd", "chdir", "set-location", "popd")), None)
        if last is None or last.arguments[:1] not in (("..",), ("../",)):
            continue
        was, now = last_part(last.directory or ""), last_part(step.item.directory or "")
        if step.how == "setup.py" and now and was in folders and now not in folders:
            yield raised("left-source", last.line, command=step.item.text[:60], build=step.line)
            break


def _source(subject: Subject) -> Iterator[Raised]:
    every = list(subject.trace.ran("git"))
    updates = [item for item in every if item.has("submodule") and item.has("update", "foreach")]
    recursing = any("submodule.recurse" in item.text for item in every)
    for item in every:
        words, cloned = item.arguments, subject.cloned(item)
        if updates and updates[-1].order > item.order:
            continue
        needs = script_rules.submodules(cloned[0]) if cloned else None
        if cloned and needs and not any(word.startswith("--recurs") for word in words) and _built(subject, *cloned):
            right = subject.rewritten(item.line, "clone", "clone --recursive")
            yield raised(
                "clone-not-recursive", item.line, folder=needs.folder, source=needs.source, corrected=right
            )  # fmt: skip
        if not (subject.torch_builds or subject.notes):
            continue
        moves = item.has("checkout", "switch", "reset", "pull") and not (item.has("checkout") and item.has("-b"))
        known = subject.checked_out_torch(item) if moves and not item.has("submodule") else None
        if known is not None and not (recursing or item.has("--recurse-submodules")):
            tag = next((word for word in words if re.match(r"(?:tags/)?v?\d{1,9}\.\d{1,9}", word)), str(known.version))
            yield raised("submodules-stale", item.line, tag=tag)
    for used in subject.trace.used if not updates else ():
        modules = used.given.get("submodules", ("",))[0].lower()
        needs = script_rules.submodules(used.repository or "")
        if needs and _built(subject, needs.repository, "") and modules not in ("recursive", "true"):
            yield raised("clone-not-recursive", used.line, folder=needs.folder, source=needs.source)


def _built(subject: Subject, repository: str, folder: str) -> bool:
    """Whether the script builds what it clones: torch, or what lies in the folder of the clone."""
    if repository == "pytorch/pytorch":
        return bool(subject.torch_builds or subject.notes)
    places = (f"{step.item.directory or ''}/{step.item.text}".lower() for step in subject.builds)
    return bool(folder) and any(re.search(rf"(?:^|[\\/\s]){re.escape(folder)}(?:$|[\\/\s])", place) for place in places)


def _jobs(subject: Subject) -> Iterator[Raised]:
    told: set[int] = set()
    missing = False
    for step in subject.builds:
        if step.what == "other" or step.how == "cmake":
            continue
        value = subject.visible("MAX_JOBS", step.item)
        if value is None:
            told_else = subject.visible("CMAKE_BUILD_PARALLEL_LEVEL", step.item) is not None or subject.helper
            told_else = told_else or subject.says(r"(?im)^(?!\s*(?:#|rem\b|::)).*(?-i:MAX_JOBS)")
            if not (missing or subject.notes or told_else) and _takes_memory(subject, step):
                missing = True
                yield raised("jobs-unset", step.line)
            continue
        if value.line in told or not value.known:
            continue
        told.add(value.line)
        text = value.text.strip()
        if not re.fullmatch(r"\d{1,9}", text) or int(text) == 0:
            if text and not re.search(r"[$%`(]", text):
                yield raised("jobs-unreadable", value.line, jobs=text)
        elif int(text) > 48:
            yield raised("jobs-absurd", value.line, jobs=text, memory=int(text) * 3)
    for item in subject.trace.invocations if not subject.notes else ():
        for word in item.words[1:]:
            match = re.fullmatch(r"-j\s*(\d{1,9})", word.text)
            if match and int(match[1]) > 64 and item.program in ("ninja", "make", "cmake") and subject.torch_builds:
                yield raised("jobs-absurd", item.line, jobs=match[1], memory=int(match[1]) * 3)


def _takes_memory(subject: Subject, step: ScriptBuild) -> bool:
    """torch with CUDA, or a heavy extension that is really compiled: no wheel is there, and some card can use it."""
    if step.what == "torch":
        without = subject.text("USE_CUDA", step.item).upper() in ("0", "OFF")
        return not without and subject.text("NO_CUDA", step.item) != "1"
    useless = any(isinstance(runs_on(step.name, None, card), Clash) for card in subject.gpus)
    return step.heavy and not useless and not ready_made(subject, step)


def _commands(subject: Subject) -> Iterator[Raised]:
    for step in subject.torch_builds:
        torch = subject.torch_at(step.item)
        if step.how == "setup.py" and torch and torch.version.major_minor >= since("setup-py-gone"):
            yield raised("setup-py-gone", step.line, torch=torch.version)
    configures = [step for step in subject.torch_builds if step.how == "cmake"]
    wheels = [step for step in subject.builds if step.makes_wheel and step.what in ("torch", "extension")]
    if configures and (not wheels or (subject.notes and len(wheels) < len(configures))):
        yield raised("libtorch-only", configures[0].line)
