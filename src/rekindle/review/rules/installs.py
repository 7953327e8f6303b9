"""What the script installs: isolation, pairs of packages, pins."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import msgspec

from rekindle.compat.companion import belongs
from rekindle.compat.judgement import Clash
from rekindle.compat.library_card import brought_by
from rekindle.compat.package import takes_mkl
from rekindle.core.version import Version
from rekindle.knowledge.builds import limits
from rekindle.knowledge.builds.script_rules import OnIndex, last_python, needs_python, script_rules
from rekindle.knowledge.torch import companions
from rekindle.knowledge.torch.releases import torch_releases
from rekindle.review.builds import image_system
from rekindle.review.document import Dialect
from rekindle.review.environment import comes_alone, environments_of
from rekindle.review.packages import CUDNN, Install, Wanted, exact_version, excludes, parts_of
from rekindle.review.pythons import image_of, python_at, python_of
from rekindle.review.remark import Raised, raised
from rekindle.review.script_torch import forge_first
from rekindle.review.subject import Known, Subject, release_of
from rekindle.review.trace import Invocation

_LIST = 4


def check(subject: Subject) -> Iterator[Raised]:
    yield from _isolation(subject)
    yield from _gone_options(subject)
    yield from _redirects(subject)
    yield from _companions(subject)
    yield from _numpy(subject)
    yield from _mkl(subject)
    yield from _cmake(subject)
    yield from _pins(subject)
    yield from _setuptools(subject)
    yield from _lists(subject)
    yield from _questions(subject)


def _isolation(subject: Subject) -> Iterator[Raised]:
    if any(item.how == "environment" for item in subject.settings("PIP_NO_BUILD_ISOLATION")):
        return
    told: set[int] = set()
    for step in subject.builds:
        if not step.isolated or step.line in told or step.what == "other":
            continue
        old = step.how == "pip" and step.what == "extension"
        if old and _pip_from(subject, step.item, limits.since("pip-isolates-setup-py")) is False:
            continue
        if any(own.name in ("BUILD_NO_CUDA", "FORCE_CPU", "NO_CUDA") and own.value == "1" for own in step.item.prefix):
            continue
        told.add(step.line)
        extra = step.item.listed and step.item.conditional  # which nobody has to take
        if step.what == "torch":
            yield raised("isolation-torch", step.line)
        elif step.certain and step.how == "pip" and not extra and not pip_of_the_system(subject, step.item):
            line, own = subject.document.line(step.line), step.item.line == step.line and not step.item.listed
            # Of several commands on a line, the one that ends with its last word.
            until = max(line.rfind(step.item.words[-1].raw), 0) or len(line)
            at = max(
                (found.end() for found in re.finditer(r"(?<![-\w])(?:install|wheel)(?![-\w])", line[:until])), default=0
            )
            right = f"{line[:at]} --no-build-isolation{line[at:]}" if at and own else None
            yield raised("isolation", step.line, name=step.name, corrected=right)
        elif extra or ".[" not in step.item.text:
            yield raised("isolation-maybe", step.line)


def _gone_options(subject: Subject) -> Iterator[Raised]:
    """`--install-option`, with a pip that has none: today's, unless an image or a pin brings an older one."""
    first = limits.since("pip-without-install-option")
    for found in subject.installs:
        item = found.item
        word = next((each for each in item.words if each.text.partition("=")[0] == "--install-option"), None)
        if word is None or found.tool != "pip" or item.conditional or _pip_from(subject, item, first) is False:
            continue
        newer = any(each.named("pip") for each in subject.installs if each.item.order < item.order)
        if newer or image_of(subject, item) is None:
            yield raised("install-option-gone", word.line)
            return


def pip_of_the_system(subject: Subject, item: Invocation) -> bool:
    """One that builds what has only a setup.py beside the torch that is there: a pyproject.toml decides."""
    image = None if item.program == "uv" or subject.says("get-pip") else image_of(subject, item)
    found = image_system(image.name) if image is not None and subject.system_python(image) else None
    own = found[0].pip.get(found[1]) if found else None
    newer = any(each.named("pip") for each in subject.installs if each.item.order < item.order)
    return own is not None and own < limits.since("pip-isolates-setup-py") and not newer


def _python_at(subject: Subject, item: Invocation) -> Known | None:
    image = image_of(subject, item)
    own = subject.system_python(image) if image is not None else None
    return python_of(subject, item) or python_at(subject, item) or (Known.python(own, item.line) if own else None)


def _pip_from(subject: Subject, item: Invocation, first: Version) -> bool | None:
    """Whether the pip at this command is that new: by the Python that it runs in, else by what was installed before."""
    python = _python_at(subject, item)
    if python is not None and needs_python("pip", first, python.version):
        return False
    before = [pip for each in subject.installs if each.item.order < item.order and (pip := each.named("pip"))]
    if not before:
        return None
    exact, asked = before[-1].exact, before[-1].requirement
    return exact >= first if exact else not (excludes(asked, str(first)) and excludes(asked, "99"))


def _redirects(subject: Subject) -> Iterator[Raised]:
    for found in subject.installs:
        item = found.item
        for redirect in item.redirects:
            line = subject.document.line(redirect.line)
            # `pip install lightning <2`: nobody keeps a list in a file called `2`.
            sign, file = redirect.sign, redirect.target
            apart = re.fullmatch(r"=?v?\d{1,9}(\.\d{1,9})*", file) and sign in ("<", ">") and f"{sign}{file}" in line
            if not (redirect.glued and re.match(r"=?\s*v?\d", file)) and not apart:
                continue
            match = re.search(rf"([A-Za-z][\w.\[\]-]*) ?{re.escape(sign)}{re.escape(file)}", line)
            text = match[0] if match else f"{sign}{file}"
            rule = "redirect-out" if sign.startswith(">") else "redirect"
            right = line.replace(text, f'"{text.replace(" ", "")}"', 1) if match else None
            yield raised(rule, redirect.line, sign=sign, text=text, file=file, corrected=right)
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
    # What only asks for torch, and takes another one, leaves its companions.
    brings = {change.found.item.order: change for change in environments_of(subject).replaced if comes_alone(change)}
    for found in subject.installs:
        if found.verb not in ("install", "create"):
            continue
        torch = found.named("torch") or found.named("pytorch")
        exact = torch.exact if torch else None
        change = brings.get(found.item.order) if torch is None else None
        if change is not None and change.after.version:
            torch, exact = change.wanted, Version(change.after.version)
        if exact is not None and torch is not None and len(exact.parts) > 2:
            pinned = Known(exact, torch.line)
            # Another torch in the same environment: what was put beside the first one stays.
            for name, stays in kept.items() if found.verb == "install" and (change or not subject.notes) else ():
                other = belongs(name, str(stays), str(exact))
                if not found.named(name) and isinstance(other, Clash):
                    yield raised("companion", torch.line, name=name, sentence=other.sentence)
        if found.verb == "create" or found.item.conditional:
            kept.clear()
        if not found.item.conditional:
            kept |= {name: beside for name in companions.PROJECTS if (beside := found.exact(name)) is not None}
        if pinned is None and found.tool != "conda":
            # The torch of the base image stays where nothing else is asked for.
            known = subject.torch_at(found.item) if subject.trace.images and torch is None else None
            image = known is not None and any(image.line == known.line for image in subject.trace.images)
            pinned = known if image else None
        for name in ("torchvision", "torchaudio"):
            wanted, version = found.named(name), found.exact(name)
            answer = belongs(name, str(version), str(pinned.version)) if pinned and version is not None else None
            if wanted is not None and isinstance(answer, Clash):
                pair = f"{name}=={version}", f"{name}=={answer.changes[0].value}"
                right = subject.rewritten(wanted.line, re.escape(pair[0]), pair[1])
                said = {"name": name, "sentence": answer.sentence}
                yield raised("companion", wanted.line, corrected=right, certain=False, **said)


def _numpy(subject: Subject) -> Iterator[Raised]:
    wanted = [(found, item) for found, item in _asked_for(subject, "numpy") if found.verb != "uninstall"]
    lists = [(name, found.item) for found in subject.installs for name in found.lists]
    if not wanted and all(subject.lies_beside(*each) for each in lists) and not subject.trace.images:
        # torchvision asks for NumPy, in any version; conda-forge's is held by what it was compiled with.
        forge = any(torch.kind == "conda-forge" for state in environments_of(subject).final for torch in state)
        asks = _asked_for(subject, "torchvision") if not forge else []
        brought = ((found, each) for found, each in asks if each.wheel is None and found.verb in ("install", "create"))
        wanted = [(found, msgspec.structs.replace(item, requirement="")) for found, item in brought][:1]
        # What conda made has a NumPy already, and pip leaves it.
        if not wanted and all(found.tool != "conda" for found in subject.installs):
            wanted = _unpinned(subject, script_rules().numpy_any)
    wanted += _unpinned(subject, script_rules().numpy_two)
    torch = subject.torch_at() or environments_of(subject).release()
    row = release_of(torch)
    if torch is None or row is None or not wanted:
        return
    # A build from source takes the NumPy that is there; what one system's wheels were made with counts for wheels.
    systems = ("linux", "windows") if subject.torch_builds else (subject.system(),)
    first = min((each for name in systems if (each := row.numpy2_from(name)) is not None), default=None)
    if first is not None and torch.version >= first:
        return
    every = [item for found in subject.installs for item in found.wanted if item.name == "numpy"]
    conda = any(found.tool == "conda" for found, _ in wanted)
    parts = (parts_of(each) for row in script_rules().numpy_one for each in row.packages if conda or not row.conda)
    rows = {each[0]: each[1] for each in parts if each}
    pins = ((rows.get(item.name), item.exact) for found in subject.installs for item in found.wanted)
    # A package that is pinned to a release for NumPy 1 keeps pip from taking NumPy 2.
    holds = any(row is not None and exact and not excludes(row, str(exact)) for row, exact in pins)
    if holds or any(_below_two(item.requirement) for item in every if item.requirement):
        return
    first_item = wanted[0][0].item
    python, image = _python_at(subject, first_item), image_of(subject, first_item)
    if python is not None and python.version < limits.since("numpy-2"):
        return  # the last NumPy for it is a 1.x
    reason = "modules that were compiled with NumPy 1.x cannot be run in NumPy 2"
    for found, item in wanted:
        if image is not None and image.pytorchs and not item.requirement and item.name == "numpy":
            continue  # the image has one, which pip leaves in place
        specifier = intended(found, item)
        two = re.match(r"(?:>=?|==|~=)\s*(2.*)", specifier, re.DOTALL)
        if two:
            yield raised("numpy-two-pinned", item.line, numpy=two[1], torch=torch.version, reason=reason)
            return
        if not specifier or not _below_two(specifier):
            yield raised("numpy-two", item.line, torch=torch.version, reason=reason)
            return


def _unpinned(subject: Subject, rows: tuple[OnIndex, ...]) -> list[tuple[Install, Wanted]]:
    """The first of these packages that pip is asked for without a release."""
    names = {name for row in rows for name in row.packages}
    pips = (found for found in subject.installs if found.tool != "conda" and found.verb == "install")
    asked = ((found, each) for found in pips for each in found.wanted)
    return [(found, each) for found, each in asked if each.name in names and each.requirement == ""][:1]


def _mkl(subject: Subject) -> Iterator[Raised]:
    """PyTorch's own conda builds take any MKL; conda-forge, where it comes before the defaults, has the newest."""
    condas = [found for found in subject.installs if found.tool == "conda"]
    held = ("mkl", "intel-openmp")  # an MKL asks for the OpenMP of its own release
    pins = [(found, item.requirement) for found in condas for item in found.wanted if item.name in held]
    old = {subject.stage(found.item.scope) for found, asked in pins if asked and excludes(asked, "2025.0.0")}
    first = limits.since("mkl-without-ijit")
    own = ("conda-forge",) if subject.says("(?i)miniforge|mambaforge") else ()  # which they ask behind what is named
    for torch in (each for state in environments_of(subject).final for each in state):
        found = next((each for each in condas if each.item.order == torch.order), None)
        optional = found is None or forge_first(found) or (found.item.conditional and found.item.listed)
        optional = optional or torch.kind != "conda"
        if found is None or optional or subject.notes or subject.stage(found.item.scope) in old:
            continue
        channels = (*found.channels, *own)
        forge = next((at for at, name in enumerate(channels) if "conda-forge" in name), len(channels))
        # The defaults have such an MKL too, and not every NumPy of theirs lets it in.
        sure = forge < len(channels) and "defaults" not in channels[:forge]
        answer = takes_mkl(torch.version, str(first)) if torch.version and torch.system == "linux" else None
        if isinstance(answer, Clash):
            rule = "mkl-too-new" if sure else "mkl-not-held"
            yield raised(rule, torch.line, sentence=answer.sentence, first=first, source=answer.source)
            return


def _asked_for(subject: Subject, name: str) -> list[tuple[Install, Wanted]]:
    return [(found, item) for found in subject.installs if (item := found.named(name)) is not None]


def intended(found: Install, item: Wanted) -> str:
    """The versions that were meant, also where the shell takes their sign for a redirection."""
    redirect = next((each for each in found.item.redirects if each.glued and each.line == item.line), None)
    if item.requirement or redirect is None or not item.raw:
        return item.requirement or ""
    return f"{redirect.sign}{redirect.target}" if item is found.wanted[-1] else ""


def meant(found: Install, item: Wanted) -> bool:
    """A version is asked for, if only where the shell takes its sign for a redirection."""
    return bool(item.requirement) or any(each.glued and each.line == item.line for each in found.item.redirects)


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
        wanted = _asked_for(subject, "cmake")
        if any(_below_four(intended(found, item)) for found, item in wanted):
            exact = next((item.exact for _, item in wanted if item.exact), None)
            if exact is not None and exact < row.min_cmake:
                yield raised("cmake-too-old", wanted[0][1].line, torch=torch.version, need=row.min_cmake, cmake=exact)
            return
        for _, item in wanted[:1]:
            what = f"this installs CMake {item.exact}" if item.exact else "pip takes the newest CMake here"
            yield raised("cmake-four", item.line, torch=torch.version, what=what, source=row.source)


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
            exact = item.exact
            named = [pin for pin in script_rules().pin if pin.package == item.name]
            named = [pin for pin in named if pin.system in (None, here) or (subject.notes and pin.versions)]
            dead = next((pin for pin in named if not pin.versions), None)
            dead = dead if dead is None or item.requirement != f"=={dead.works}" else None
            if dead is not None and found.tool != "conda" and item.source is None and item.wheel is None:
                right = subject.rewritten(item.line, rf"(?<![\w-]){re.escape(item.raw)}(?![\w-])", dead.instead)
                yield raised(
                    "dead-name", item.line, name=item.name, reason=dead.why, instead=dead.instead,
                    source=dead.source, certain=False, corrected=right,
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
            last = last_python(item.name, exact, python.version) if python else None
            if python is not None and last is not None and item.source is None:
                yield raised(
                    "pin-for-older-python", item.line, requirement=f"{item.name}=={exact}", last=last[0],
                    python=python.version, instead=f"{item.name}>={last[1]}",
                )  # fmt: skip
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
        told = {"torch": str(torch.version), "minor": row.minor, "spec": row.setuptools}
        wanted = _asked_for(subject, "setuptools")
        for _, item in wanted:
            if item.exact is not None and excludes(row.setuptools, str(item.exact)):
                yield Raised(rule="setuptools-pin", line=item.line, fields={"version": str(item.exact), **told})
                return
        lists = [found for found in subject.installs if len(found.wanted) >= _LIST and found.verb == "install"]
        lines = [item.line for _, item in wanted] or [found.item.line for found in lists if subject.notes]
        if lines and row.setuptools.startswith("<") and not any(meant(*each) for each in wanted):
            yield Raised(rule="setuptools-free", line=lines[0], fields=told)


def _listed_without(subject: Subject) -> Iterator[Raised]:
    """A list of pins for a build, without setuptools: the last release that minds is the one to name."""
    row = [row for row in torch_releases() if row.setuptools.startswith("<")][-1]
    for found in subject.installs:
        names = {item.name for item in found.wanted}
        if len(names) >= 2 * _LIST and {"cmake", "ninja"} <= names and "setuptools" not in names:
            yield raised("setuptools-free", found.item.line, torch=row.newest, minor=row.minor, spec=row.setuptools)
            return


def _own_cudnn(subject: Subject, found: Install) -> Iterator[Raised]:
    """torch's wheels for Linux ask pip for one cuDNN to the last number; another beside it cannot be had."""
    pinned = found.exact("torch")
    if pinned is None or found.tool == "conda" or subject.system() == "windows":
        return
    for item in found.wanted:
        name, number = CUDNN.fullmatch(item.name), item.exact
        own = brought_by(str(pinned), int(name[2])) if name and name[1] and name[2] else ()
        if number is not None and own and not any(each.starts_with(number) for each in own):
            asked = ", ".join(sorted({str(each) for each in own}))
            yield raised("requirement-conflict", item.line, name=item.name, versions=f"{number}, and {asked} by torch")


def _lists(subject: Subject) -> Iterator[Raised]:
    installed: set[str] = set()
    for found in subject.installs:
        names = [item.name for item in found.wanted if item.requirement is not None]
        installed |= set(names)
        pairs = (pair for pair in pairwise(found.wanted) if pair[1].name == "install" and not pair[0].requirement)
        inner = next((pair for pair in pairs if pair[0].name in ("pip", "pip3")), None)
        if inner is not None:
            yield raised("lost-and", inner[0].line, words=f"{inner[0].raw} {inner[1].raw}")
            continue
        # conda tells `a-b` from `a_b`, and takes two demands for one.
        for name, count in Counter(names).items() if found.tool != "conda" else ():
            same = [item for item in found.wanted if item.name == name and item.requirement is not None]
            exact = {str(item.exact) for item in same if not item.marker and item.exact}
            extras = len({extra[0] if (extra := re.search(r"\[.*\]", item.raw)) else "" for item in same}) > 1
            if count > 1 and len(exact) > 1 and not subject.notes:
                yield raised("requirement-conflict", same[-1].line, name=name, versions=", ".join(sorted(exact)))
            elif count > 1 and len({item.marker for item in same}) < 2 and not extras:
                # One demand, twice, or `six` beside `six==1.2` in a list, which grew, asks for nothing more.
                demands = {item.requirement for item in same} - {""}
                if len(demands) != 1 or not (found.lists or found.item.listed):
                    yield raised("requirement-twice", same[-1].line, name=name)
        yield from _own_cudnn(subject, found)
    if not installed or "build" in installed or any(found.lists for found in subject.installs):
        return
    steps = [step for step in subject.builds if step.how == "build" and step.item.program in ("python", "py")]
    yield from (raised("build-not-installed", step.line) for step in steps[:1])


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
        if removes and not item.has("-y", "--yes") and "uninstall" not in told:
            told.add("uninstall")
            yield raised("uninstall-asks", item.line)
        if not unattended:
            continue
        # GitHub's own runners are set to yes, and conda takes the end of its input for one.
        hosted = subject.document.dialect is Dialect.WORKFLOW and image_of(subject, item) is None
        apt = item.program in ("apt", "apt-get", "yum", "dnf") and "install" in words and not hosted
        yes = any(re.match(r"-[a-z]*y[a-z]*$|--yes|--assume-yes|--assumeyes|-qq\b|-q=2", word) for word in words)
        if apt and not yes and item.program not in told and "Assume-Yes" not in subject.document.text:
            told.add(item.program)
            yield raised("install-asks", item.line, tool=item.program)
