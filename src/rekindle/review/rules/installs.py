"""What the script installs: isolation, pairs of packages, pins."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec

from rekindle.compat.companion import belongs
from rekindle.compat.judgement import Clash
from rekindle.compat.library_card import brought_by
from rekindle.core.version import Version
from rekindle.knowledge.builds import limits
from rekindle.knowledge.builds.script_rules import needs_python, script_rules
from rekindle.knowledge.torch import companions
from rekindle.knowledge.torch.releases import torch_releases
from rekindle.review.document import Dialect
from rekindle.review.packages import CUDNN, Install, Wanted, excludes, parts_of
from rekindle.review.pythons import image_of, python_at, python_of
from rekindle.review.remark import Raised, raised
from rekindle.review.subject import Known, Subject, exact_text, exact_version
from rekindle.review.trace import Invocation

_LIST = 4


def check(subject: Subject) -> Iterator[Raised]:
    yield from _isolation(subject)
    yield from _redirects(subject)
    yield from _companions(subject)
    yield from _numpy(subject)
    yield from _cmake(subject)
    yield from _pins(subject)
    yield from _setuptools(subject)
    yield from _lists(subject)
    yield from _questions(subject)


def _isolation(subject: Subject) -> Iterator[Raised]:
    switched_off = any(
        item.name == "PIP_NO_BUILD_ISOLATION" for item in subject.trace.assignments if item.how == "environment"
    )
    told: set[int] = set()
    for step in subject.builds:
        if not step.isolated or switched_off or step.line in told or step.what == "other":
            continue
        if (
            step.how == "pip"
            and step.what == "extension"
            and _pip_from(subject, step.item, limits.since("pip-isolates-setup-py")) is False
        ):
            continue
        if any(own.name in ("BUILD_NO_CUDA", "FORCE_CPU", "NO_CUDA") and own.value == "1" for own in step.item.prefix):
            continue
        told.add(step.line)
        if step.what == "torch":
            yield raised("isolation-torch", step.line)
        elif step.item.listed and step.item.conditional:
            yield raised("isolation-maybe", step.line)  # an extra, which nobody has to take
        elif step.certain and step.how == "pip":
            line = subject.document.line(step.line)
            # Of several commands on a line, the one that ends with its last word.
            until = max(line.rfind(step.item.words[-1].raw), 0) or len(line)
            at = max((found.end() for found in re.finditer(r"\b(?:install|wheel)\b", line[:until])), default=0)
            right = f"{line[:at]} --no-build-isolation{line[at:]}" if at else line
            yield raised(
                "isolation",
                step.line,
                name=step.name,
                corrected=right if right != line and step.item.line == step.line and not step.item.listed else None,
            )
        elif not re.search(r"\.\[", step.item.text):
            yield raised("isolation-maybe", step.line)


def _python_at(subject: Subject, item: Invocation) -> Known | None:
    return python_of(subject, item) or python_at(subject, item)


def _pip_from(subject: Subject, item: Invocation, first: Version) -> bool | None:
    """Whether the pip at this command is that new: by the Python that it runs in, else by what was installed before."""
    python = _python_at(subject, item)
    if python is not None and needs_python("pip", first, python.version):
        return False
    before = [pip for each in subject.installs if each.item.order < item.order and (pip := each.named("pip"))]
    exact = exact_version(before[-1].requirement) if before else None
    if not before or exact is not None:
        return exact >= first if exact is not None else None
    return not (excludes(before[-1].requirement, str(first)) and excludes(before[-1].requirement, "99"))


def _redirects(subject: Subject) -> Iterator[Raised]:
    for found in subject.installs:
        item = found.item
        for redirect in item.redirects:
            line = subject.document.line(redirect.line)
            # `pip install lightning <2`: nobody keeps a list in a file called `2`.
            version = re.fullmatch(r"=?v?\d+(\.\d+)*", redirect.target) and redirect.sign in ("<", ">")
            apart = version and f"{redirect.sign}{redirect.target}" in line
            if not (redirect.glued and re.match(r"=?\s*v?\d", redirect.target)) and not apart:
                continue
            match = re.search(rf"([A-Za-z][\w.\[\]-]*) ?{re.escape(redirect.sign)}{re.escape(redirect.target)}", line)
            text = match[0] if match else f"{redirect.sign}{redirect.target}"
            rule = "redirect-out" if redirect.sign.startswith(">") else "redirect"
            right = line.replace(text, f'"{text.replace(" ", "")}"', 1) if match else None
            yield raised(rule, redirect.line, sign=redirect.sign, text=text, file=redirect.target, corrected=right)
        for word in item.words if item.dialect is not Dialect.SHELL else ():
            if "://" in word.text and item.after == "&":
                yield raised("ampersand", word.line)
    for item in subject.trace.invocations:
        # `pip install git+https://…#egg=x&subdirectory=y`: what follows `&` looks like a command of its own.
        if re.match(r"(?:subdirectory|egg)=", item.words[0].text):
            yield raised("ampersand", item.line)


def _companions(subject: Subject) -> Iterator[Raised]:
    pinned: Known | None = None
    kept: dict[str, Version] = {}
    for found in subject.installs:
        if found.verb not in ("install", "create"):
            continue
        torch = found.named("torch") or found.named("pytorch")
        exact = exact_version(torch.requirement) if torch else None
        if exact is not None and torch is not None and len(exact.parts) > 2:
            pinned = Known(exact, torch.line)
            # Another torch in the same environment: what was put beside the first one stays.
            for name, stays in kept.items() if found.verb == "install" and not subject.notes else ():
                answer = belongs(name, str(stays), str(exact))
                if not found.named(name) and isinstance(answer, Clash):
                    yield raised("companion", torch.line, name=name, sentence=answer.sentence)
        if found.verb == "create" or found.item.conditional:
            kept.clear()
        for name in companions.PROJECTS if not found.item.conditional else ():
            beside = exact_version(each.requirement) if (each := found.named(name)) else None
            kept |= {name: beside} if beside is not None else {}
        if pinned is None and found.tool != "conda":
            # The torch of the base image stays where nothing else is asked for.
            known = subject.torch_at(found.item) if subject.trace.images and torch is None else None
            image = known is not None and any(image.line == known.line for image in subject.trace.images)
            pinned = known if image else None
        for name in ("torchvision", "torchaudio"):
            wanted = found.named(name)
            version = exact_version(wanted.requirement) if wanted else None
            if pinned is None or wanted is None or version is None:
                continue
            answer = belongs(name, str(version), str(pinned.version))
            if not isinstance(answer, Clash):
                continue
            fitting = answer.changes[0].value
            line = subject.document.line(wanted.line)
            corrected = line.replace(f"{name}=={version}", f"{name}=={fitting}", 1)
            yield raised(
                "companion", wanted.line, name=name, sentence=answer.sentence,
                corrected=corrected if corrected != line else None, certain=False,
            )  # fmt: skip


def _holds_numpy(subject: Subject) -> bool:
    """A package that is pinned to a release for NumPy 1 keeps pip from taking NumPy 2."""
    rows = [parts_of(each) for row in script_rules().numpy_one for each in row.packages]
    pins = [(item.name, exact_text(item.requirement)) for found in subject.installs for item in found.wanted]
    return any(row and row[0] == name and exact and not excludes(row[1], exact) for row in rows for name, exact in pins)


def _numpy(subject: Subject) -> Iterator[Raised]:
    release = subject.release_at()
    wanted = [
        (found, item)
        for found in subject.installs
        if (item := found.named("numpy")) is not None and found.verb != "uninstall"
    ]
    if not wanted and not any(found.lists for found in subject.installs) and not subject.trace.images:
        # torchvision asks for NumPy, in any version.
        brought = ((found, found.named("torchvision")) for found in subject.installs if found.tool != "conda")
        wanted = [
            (found, msgspec.structs.replace(item, requirement=""))
            for found, item in brought
            if item is not None and item.wheel is None and found.verb == "install"
        ][:1]
    if release is None or not wanted:
        return
    row, torch = release
    # A build from source takes the NumPy that is there; what one system's wheels were made with counts for wheels.
    froms = [row.numpy2_from(each) for each in ("linux", "windows")]
    known = [each for each in froms if each is not None]
    first = min(known, default=None) if subject.torch_builds else row.numpy2_from(subject.system())
    if first is not None and torch.version >= first:
        return
    every = [item for found in subject.installs for item in found.wanted if item.name == "numpy"]
    if any(_below_two(item.requirement) for item in every if item.requirement) or _holds_numpy(subject):
        return
    first_item = wanted[0][0].item
    python, image = python_of(subject, first_item), image_of(subject, first_item)
    own = subject.system_python(image) if image is not None else None
    number = python.version if python else Version(own) if own else None
    if number is not None and number < limits.since("numpy-2"):
        return  # the last NumPy for it is a 1.x
    reason = "modules that were compiled with NumPy 1.x cannot be run in NumPy 2"
    for found, item in wanted:
        if image is not None and "pytorch/pytorch:" in image.name and not item.requirement:
            continue  # the image has one, which pip leaves in place
        old = _glued(found, item)
        if old is None:
            continue
        if old:
            yield raised("numpy-two-pinned", item.line, numpy=old, torch=torch.version, reason=reason)
        else:
            yield raised("numpy-two", item.line, torch=torch.version, reason=reason)
        return


def intended(found: Install, item: Wanted) -> str:
    """The versions that were meant, also where the shell takes their sign for a redirection."""
    redirect = next((each for each in found.item.redirects if each.glued and each.line == item.line), None)
    if item.requirement or redirect is None or not item.raw:
        return item.requirement or ""
    return f"{redirect.sign}{redirect.target}" if item is found.wanted[-1] else ""


def meant(found: Install, item: Wanted) -> bool:
    """A version is asked for, if only where the shell takes its sign for a redirection."""
    return bool(item.requirement) or any(each.glued and each.line == item.line for each in found.item.redirects)


def _glued(found: Install, item: Wanted) -> str | None:
    """`2.0` when the requirement asks for NumPy 2, empty when it asks for nothing, None when it does not."""
    specifier = intended(found, item)
    if not specifier:
        return ""
    if re.match(r"(?:>=?|==|~=)\s*2", specifier):
        return re.sub(r"^[<>=~!\s]+", "", specifier)
    return None if _below_two(specifier) else ""


def _below_two(specifier: str | None) -> bool:
    """No NumPy 2 at all fits."""
    exact = exact_version(specifier)
    if exact is not None:
        return exact.major < 2
    return all(excludes(specifier, version) for version in ("2.0.0", "2.0.2", "2.1.0", "2.2.0", "2.4.0", "2.99.0"))


def _cmake(subject: Subject) -> Iterator[Raised]:
    for step in subject.torch_builds[:1]:
        release = subject.release_at(step.item)
        if release is None:
            return
        row, torch = release
        if row.cmake4_unpatched or subject.visible("CMAKE_POLICY_VERSION_MINIMUM", step.item) is not None:
            return
        wanted = [(found, item) for found in subject.installs if (item := found.named("cmake")) is not None]
        if any(_below_four(intended(found, item)) for found, item in wanted):
            exact = next(
                (exact_version(item.requirement) for _, item in wanted if exact_version(item.requirement)), None
            )
            if exact is not None and exact < row.min_cmake:
                yield raised("cmake-too-old", wanted[0][1].line, torch=torch.version, need=row.min_cmake, cmake=exact)
            return
        for _, item in wanted:
            exact = exact_version(item.requirement)
            what = f"this installs CMake {exact}" if exact else "pip takes the newest CMake here"
            yield raised("cmake-four", item.line, torch=torch.version, what=what, source=row.source)
            return


def _below_four(specifier: str | None) -> bool:
    exact = exact_version(specifier)
    return exact.major < 4 if exact is not None else excludes(specifier, "4.0.0")


def _pins(subject: Subject) -> Iterator[Raised]:
    for found in subject.installs:
        python = _python_at(subject, found.item)
        here, number = subject.system(found.item), str(python.version) if python else None
        for item in found.wanted if found.verb in ("install", "create", "sync") else ():
            if not item.applies(here, number):
                continue
            exact = exact_version(item.requirement)
            named = [pin for pin in script_rules().pin if pin.package == item.name]
            named = [pin for pin in named if pin.system in (None, here) or (subject.notes and pin.versions)]
            dead = next((pin for pin in named if not pin.versions), None)
            if dead is not None and found.tool != "conda" and item.source is None and item.wheel is None:
                line = subject.document.line(item.line)
                yield raised(
                    "dead-name", item.line, name=item.name, reason=dead.why, instead=dead.instead,
                    source=dead.source, certain=False,
                    corrected=re.sub(rf"(?<![\w-]){re.escape(item.raw)}(?![\w-])", dead.instead, line, count=1),
                )  # fmt: skip
            floor = re.match(r"(?:[=~>]=)(\d{1,9}(?:\.\d{1,9}){1,7})", item.requirement or "")
            needs = needs_python(item.name, Version(floor[1]), python.version) if floor and python else None
            if python is not None and needs is not None:
                yield raised(
                    "pin-needs-python", item.line, requirement=f"{item.name}{item.requirement}", least=needs[0],
                    python=python.version, instead=f"{item.name}<{needs[1]}",
                )  # fmt: skip
            if exact is None:
                continue
            pins = [pin for pin in named if pin.versions and not excludes(pin.versions, str(exact))]
            spoken = f"{item.name}=={exact}"
            for pin in pins:
                if pin.pip_from and not _pip_from(subject, found.item, pin.pip_from):
                    continue
                rule = "pin-not-for-this-pip" if pin.pip_from else "bad-pin"
                yield raised(
                    rule, item.line, reason=pin.why, requirement=spoken, instead=pin.instead, source=pin.source
                )  # fmt: skip
            tool = limits.bad_tool(item.name, exact, here)
            if tool is not None and not pins:
                yield raised("bad-pin", item.line, requirement=spoken, reason=tool.trouble, instead="another version")


def _setuptools(subject: Subject) -> Iterator[Raised]:
    if subject.notes and subject.torch_at() is None:
        yield from _listed_without(subject)
    for step in subject.torch_builds[:1]:
        release = subject.release_at(step.item)
        if release is None:
            return
        row, torch = release
        fields = {"torch": str(torch.version), "minor": row.minor, "spec": row.setuptools}
        wanted = [(found, item) for found in subject.installs if (item := found.named("setuptools")) is not None]
        for _, item in wanted:
            exact = exact_version(item.requirement)
            if exact is not None and excludes(row.setuptools, str(exact)):
                yield Raised(rule="setuptools-pin", line=item.line, fields={"version": str(exact), **fields})
                return
        lists = [found for found in subject.installs if len(found.wanted) >= _LIST and found.verb == "install"]
        if wanted and not any(meant(*each) for each in wanted) and row.setuptools.startswith("<"):
            yield Raised(rule="setuptools-free", line=wanted[0][1].line, fields=fields)
        elif not wanted and lists and subject.notes and row.setuptools.startswith("<"):
            yield Raised(rule="setuptools-free", line=lists[0].item.line, fields=fields)


def _listed_without(subject: Subject) -> Iterator[Raised]:
    """A list of pins for a build, without setuptools: the last release that minds is the one to name."""
    minds = [row for row in torch_releases() if row.setuptools.startswith("<")]
    for found in subject.installs:
        names = {item.name for item in found.wanted}
        if len(names) >= 2 * _LIST and {"cmake", "ninja"} <= names and "setuptools" not in names and minds:
            row = minds[-1]
            yield raised("setuptools-free", found.item.line, torch=row.newest, minor=row.minor, spec=row.setuptools)
            return


def _own_cudnn(subject: Subject, found: Install) -> Iterator[Raised]:
    """torch's wheels for Linux ask pip for one cuDNN to the last number; another beside it cannot be had."""
    torch = found.named("torch")
    pinned = exact_version(torch.requirement) if torch is not None and torch.requirement else None
    if pinned is None or found.tool == "conda" or subject.system() == "windows":
        return
    for item in found.wanted:
        name = CUDNN.fullmatch(item.name)
        number = exact_version(item.requirement) if name and item.requirement else None
        own = brought_by(str(pinned), int(name[2])) if name and name[1] and name[2] else ()
        if number is not None and own and not any(each.starts_with(number) for each in own):
            asked = ", ".join(sorted({str(each) for each in own}))
            yield raised("requirement-conflict", item.line, name=item.name, versions=f"{number}, and {asked} by torch")


def _lists(subject: Subject) -> Iterator[Raised]:
    installed: set[str] = set()
    for found in subject.installs:
        names = [item.name for item in found.wanted if item.requirement is not None]
        installed |= set(names)
        inner = next((pair for pair in pairwise(found.wanted) if _is_pip(*pair)), None)
        if inner is not None:
            yield raised("lost-and", inner[0].line, words=f"{inner[0].raw} {inner[1].raw}")
            continue
        # conda tells `a-b` from `a_b`, and takes two demands for one.
        for name, count in Counter(names).items() if found.tool != "conda" else ():
            same = [item for item in found.wanted if item.name == name and item.requirement is not None]
            exact = {str(number) for item in same if not item.marker and (number := exact_version(item.requirement))}
            extras = len({extra[0] if (extra := re.search(r"\[.*\]", item.raw)) else "" for item in same}) > 1
            if count > 1 and len(exact) > 1 and not subject.notes:
                yield raised("requirement-conflict", same[-1].line, name=name, versions=", ".join(sorted(exact)))
            elif count > 1 and len({item.marker for item in same}) < 2 and not (extras or _agree(found, same)):
                yield raised("requirement-twice", same[-1].line, name=name)
        yield from _own_cudnn(subject, found)
    for step in subject.builds:
        files = any(found.files for found in subject.installs)
        by_python = step.how == "build" and step.item.program in ("python", "py")
        if by_python and installed and "build" not in installed and not files:
            yield raised("build-not-installed", step.line)
            return


def _agree(found: Install, same: Sequence[Wanted]) -> bool:
    """One demand, twice, or `six` beside `six==1.2` in a list, which grew, asks for nothing more."""
    demands = {item.requirement for item in same} - {""}
    return bool(found.lists or found.item.listed) and len(demands) == 1


def _is_pip(first: Wanted, second: Wanted) -> bool:
    return first.name in ("pip", "pip3") and second.name == "install" and not first.requirement


def _questions(subject: Subject) -> Iterator[Raised]:
    unattended = subject.document.dialect.unattended
    unattended = unattended or re.search(r"(?m)^#(?:SBATCH|PBS|BSUB|\$ -)", subject.document.text) is not None
    told: set[str] = set()
    piped = {(program, item.line) for item in subject.trace.invocations for program in item.piped}
    for item in subject.trace.invocations:
        words = item.arguments
        fed = any(redirect.sign == "<" for redirect in item.redirects) or (item.program, item.line) in piped
        if fed or subject.notes:
            continue
        removes = "uninstall" in words and (item.program == "pip" or "pip" in words) and item.program != "uv"
        if removes and not item.has("-y", "--yes"):
            if "uninstall" not in told:
                yield raised("uninstall-asks", item.line)
            told.add("uninstall")
        if not unattended:
            continue
        # GitHub's own runners are set to yes, and conda takes the end of its input for one.
        hosted = subject.document.dialect is Dialect.WORKFLOW and image_of(subject, item) is None
        apt = item.program in ("apt", "apt-get", "yum", "dnf") and "install" in words and not hosted
        yes = any(re.match(r"-[a-z]*y[a-z]*$|--yes|--assume-yes|--assumeyes|-qq\b|-q=2", word) for word in words)
        if apt and not yes and item.program not in told and "Assume-Yes" not in subject.document.text:
            told.add(item.program)
            yield raised("install-asks", item.line, tool=item.program)
