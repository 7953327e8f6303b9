"""Ready-made torch: does that wheel exist for the system, the Python and the GPU, and does it stay?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

import msgspec

from rekindle.compat.companion import release_for
from rekindle.compat.container import gets_cards, shows_cards
from rekindle.compat.driver_cuda import newest_full
from rekindle.compat.judgement import Clash, Judgement, Unknown
from rekindle.compat.package import goes_with as package_goes_with
from rekindle.compat.package import has_library, is_bound, runs_on, taken_from_page, wheel_runs_on
from rekindle.compat.torch_cuda import has_line, is_index, published
from rekindle.compat.wheel_platform import built_for, goes_here, goes_with
from rekindle.core.command import Command
from rekindle.core.version import Version
from rekindle.knowledge.builds.script_rules import asks_torch, extension, on_pytorchs_index, pins_torch
from rekindle.knowledge.logs import extension_homes
from rekindle.knowledge.torch import wheel_platforms
from rekindle.knowledge.torch.companions import PROJECTS, lines_for
from rekindle.knowledge.torch.releases import torch_release
from rekindle.model.cuda_line import CudaLine, index_of
from rekindle.model.platform import Platform
from rekindle.model.torch_pin import CPU
from rekindle.review.document import LISTS, Dialect
from rekindle.review.environment import TorchReplaced, broken_by, environments_of
from rekindle.review.judging import answered, serves
from rekindle.review.packages import Install, exact_text, exact_version
from rekindle.review.proposal import instead, of_project, serving, spelled
from rekindle.review.pythons import image_of, python_of
from rekindle.review.remark import Raised, raised
from rekindle.review.script_torch import ScriptTorch
from rekindle.review.subject import Subject
from rekindle.review.trace import Invocation
from rekindle.stack.driver import cards_driven, window_of
from rekindle.stack.offers import Offer


def check(subject: Subject) -> Iterator[Raised]:
    yield from _wheels(subject)
    yield from _musl(subject)
    yield from (_replacement(subject, change) for change in _changes(subject))
    nvidias = [each for each in environments_of(subject).replaced if each.before.of_nvidia and each.after.version]
    for change in nvidias[:1]:
        name, torch = change.wanted.name, change.after.spoken
        yield raised(
            "torch-of-nvidia-replaced", change.wanted.line, name=name, torch=torch, image=str(change.before.name)
        )
    yield from _kernels(subject)
    yield from _others(subject)
    yield from _local(subject)
    yield from _channels(subject)
    yield from _hidden(subject)
    torches = [each for final in environments_of(subject).final for each in final if each.variant != CPU]
    for service in subject.trace.without_cards:
        if any(each.order in service.orders for each in torches):
            yield raised("service-without-cards", service.line, name=service.name)
    yield from _shown(subject)
    yield from _drivers(subject)
    yield from _over_built(subject)


def _wheels(subject: Subject) -> Iterator[Raised]:
    """A ready-made torch: does that wheel exist, and does it serve the GPU?"""
    made = environments_of(subject)
    for torch in made.every:
        index = is_index(torch.index) if torch.index else None
        if isinstance(index, Clash):
            near = index_of(index.changes[0].value)
            yield raised("no-such-index", torch.line, sentence=index.sentence, near=near, source=index.source)
            continue
        exists = published(torch.version) if torch.version and torch.kind in ("wheel", "conda") else None
        if isinstance(exists, Clash):
            yield raised("torch-no-such-release", torch.line, sentence=exists.sentence, source=exists.source)
        answer = has_line(torch.version, torch.variant) if torch.version and torch.variant else None
        if isinstance(answer, Clash) and (torch.kind == "wheel" or (torch.kind == "conda" and torch.pinned)):
            official = ", ".join(each.name for each in torch_release(torch.version or "").variants)
            yield raised(
                "torch-no-such-wheel", torch.line, torch=torch.version, variant=torch.variant, official=official
            )
    told = {(each.after.line, each.after.order) for each in _changes(subject)}
    for answers in answered(subject):
        for torch, answer in answers.clashes:
            if (torch.line, torch.order) in told:
                continue  # said with what replaced the torch that was there
            rule = "wheel-not-for-the-card"
            if torch.variant == CPU:
                other_cards = any(each.variant != CPU for one in answered(subject) for each, _ in one.every)
                rule = "torch-cpu-only" if other_cards else "torch-no-cuda"
            note = "" if torch.pinned or torch.kind == "image" else "it is the newest one that is taken here; "
            said = _of(torch, answer.sentence)
            where, own = answers.situation, torch.kind != "program"
            offer = serving(torch, where, of_project(subject, answers)) if own else None
            other = instead(subject, torch, where, offer) if own else ""
            found = raised(rule, torch.line, sentence=said, note=note, better=other, source=answer.source)
            # Of several cards, one torch may serve one only.
            alone = offer is not None and len(subject.gpus) == 1 and rule != "torch-cpu-only"
            more = _repinned(subject, torch, offer) if offer is not None and alone else {}
            yield msgspec.structs.replace(found, corrected=more.pop(torch.line, None), more=more)
        for torch, sentence in answers.loses:
            yield raised("wheel-loses", torch.line, sentence=sentence, torch=torch.spoken)


def _repinned(subject: Subject, torch: ScriptTorch, offer: Offer) -> dict[int, str]:
    """The lines of a torch, its companions and its index, written for another build; empty: not certain."""
    installs = [each for each in subject.installs if each.item.order == torch.order and each.torch is not None]
    listed = subject.document.dialect is Dialect.REQUIREMENTS
    found = installs[0] if len(installs) == 1 and torch.kind == "wheel" else None
    if found is None or found.tool == "conda" or not (listed or found.item.line == found.item.last):
        return {}
    if found.item.listed and not (listed or found.index):
        return {}  # no word can be added where no command stands
    index, at = index_of(offer.variant or ""), found.index_line if found.index else torch.line
    line = subject.document.line(at)
    lines: dict[int, str] = {}
    if found.backend:
        lines[at] = re.sub(r"(--torch-backend[= ])\S+", rf"\g<1>{offer.variant}", line)
    elif found.index:
        page = re.sub(r"(?:-f|--find-links)[= ]+(?=https://download\.pytorch)", "--index-url ", line)
        if len(re.findall(r"(?:^|\s)(?:-i|--index-url)[= ]", page)) > 1:
            return {}  # pip takes the last one
        if re.search(r"download\.pytorch\.org/whl/[\w./-]*[$%!{]", page):
            return {}  # what names the index may be used elsewhere too
        lines[at] = re.sub(r"https://download\.pytorch\.org/whl/[^\s\"',)]+", index, page)
    elif listed:
        lines[at] = f"--extra-index-url {index}\n{line}"
    else:
        end = line.rfind(found.item.words[-1].raw) + len(found.item.words[-1].raw)
        # PyTorch's index has hardly anything but PyTorch; of two indexes pip takes the build with a line's name.
        alone = all(each.name in ("torch", *PROJECTS) for each in found.wanted)
        lines[at] = f"{line[:end]} --{'' if alone else 'extra-'}index-url {index}{line[end:]}"
    for wanted in found.wanted:
        if wanted.name != "torch" and wanted.name not in PROJECTS:
            continue
        right = offer.torch if wanted.name == "torch" else release_for(wanted.name, offer.torch)
        line = lines.get(wanted.line, subject.document.line(wanted.line))
        version = r"\s*===?\s*[\w.]+(?:\+\w+)?" if wanted.requirement else r"(?![\w.-]|\s*[=<>~!@\[])"
        pin = re.compile(rf"(?i)(?<![\w.-]){wanted.name}{version}")
        if right is None or len(pin.findall(line)) != 1:
            return {}
        place = Platform(torch.system, subject.machine)
        if wanted.name != "torch" and offer.variant not in lines_for(wanted.name, offer.torch, place):
            return {}
        newest = not wanted.requirement and offer.torch == torch.version
        lines[wanted.line] = line if newest else pin.sub(f"{wanted.name}=={right}", line, count=1)
    return lines


def _of(torch: ScriptTorch, sentence: str) -> str:
    """The sentence with the torch that it is about, if it does not name it."""
    return sentence if "torch" in sentence or torch.kind == "program" else f"{torch.spoken}: {sentence}"


def _musl(subject: Subject) -> Iterator[Raised]:
    """A base image whose C library no wheel of torch is made for."""
    told: set[int] = set()
    for found in subject.installs:
        image = image_of(subject, found.item)
        named = (item for item in found.wanted if item.name == "torch" or pins_torch(item.name))
        wanted = next((item for item in named if item.source is None), None)
        if image is None or wanted is None or found.tool == "conda" or found.verb not in ("install", "download"):
            continue
        parts = ((part, wheel_platforms.find(part)) for part in re.split(r"[/:@_-]", image.name))
        name = next((part for part, found in parts if found is not None and found[0].libc == "musl"), None)
        if name is None or image.line in told:
            continue
        told.add(image.line)
        right = subject.rewritten(image.line, r"(python:[\w.]+)-alpine[\d.]*", r"\1-slim")
        yield raised(
            "musl-no-wheel", image.line, image=image.name, name=wanted.name, line_install=wanted.line,
            corrected=right, certain=False,
        )  # fmt: skip


def _changes(subject: Subject) -> Iterator[TorchReplaced]:
    """Later commands that let pip choose torch anew."""
    for change in environments_of(subject).replaced:
        before = change.before
        if before.order == change.after.order or before.variant == CPU or _kept(change.found, before):
            continue
        if before.variant is None and not (before.of_conda or before.of_module):
            continue
        if before.kind != "image" or before.version:
            yield change


def _over_built(subject: Subject) -> Iterator[Raised]:
    """A wheel that asks for a torch of the index, behind one that was built: 2.4.0a0+git is no 2.4.0."""
    named = any(each.name == "PYTORCH_BUILD_VERSION" and each.value for each in subject.trace.assignments)
    installed = [step for step in subject.torch_builds if {"install", "develop"} & set(step.item.arguments)]
    step = None if named or subject.notes or not installed else installed[0]
    for found in subject.installs if step else ():
        if step is None or found.item.order <= step.item.order or found.has("--no-deps") or found.item.conditional:
            continue
        asks = next((each for each in found.wanted if pins_torch(each.name) and not (each.source or each.wheel)), None)
        if asks is not None and found.verb == "install" and found.tool != "conda":
            yield raised("built-replaced", asks.line, name=asks.name, build=step.line)
            return


def _kept(found: Install, before: ScriptTorch) -> bool:
    """Nothing else is installed, or in another place."""
    chosen = (found.index is not None or found.lists or found.backend or found.binary) and not before.of_module
    return bool(chosen or found.item.conditional) or found.has("--no-deps", "--target", "-t", "--prefix", "--dry-run")


def _replacement(subject: Subject, change: TorchReplaced) -> Raised:
    before, after, wanted = change.before, change.after, change.wanted
    lost = ""
    if after.system == "windows" and after.variant == CPU:
        lost = ", which has no CUDA on Windows"
    elif after.version and after.variant:
        line = CudaLine.parse(after.variant)
        lost = f", now {after.version}" + (f" for CUDA {line.cuda}" if line else "")
    clash = next((each for one in answered(subject) for torch, each in one.every if torch.same(after)), None)
    if isinstance(clash, Clash) and after.variant != CPU:
        lost += f": {clash.sentence}"
    index = before.index or index_of(before.variant or "")
    fitting = _fitting(wanted.name, before.version or "")
    exists = not isinstance(has_line(before.version or "", before.variant or ""), Clash)
    useless = [one.situation for one in answered(subject) if isinstance(serves(before, one.situation), Clash)]
    better = serving(before, useless[0]) if useless and isinstance(clash, Clash) else None
    # To keep what does not serve the card helps nobody.
    if useless and after.version and not isinstance(clash, Clash):
        again = f"pin what it takes (torch=={after.version}): {before.spoken} does not serve the card"
    elif better is not None:
        again = f"pin {better.label} ({spelled(subject, before, useless[0], better)})"
    elif before.of_module:
        again = f"load the module of {wanted.name} that was built for it, or leave this line out"
    elif before.of_conda:
        again = f"take {wanted.name} from conda's channel as well, in the command of line {before.line}"
    elif wanted.name == "torch":
        others = any(each.name not in ("torch", *PROJECTS) for each in change.found.wanted)
        add = f"add --index-url {index}"
        if change.found.item.program == "poetry":
            source = Command("poetry", "source", "add", "--priority", "explicit", "pytorch", index)
            add = f"add `--source pytorch` after `{source}`"
        again = f"leave {'torch out of this line' if others else 'this line out'}, or {add}"
    elif fitting is not None and exists:
        where = f"in the command of line {before.line}" if before.kind == "wheel" else "here"
        of_index = f" (--index-url {index})" if wanted.name in PROJECTS else ""
        again = f"install {wanted.name}=={fitting} {where}{of_index}"
    elif before.version is None:
        again = f"leave line {before.line} out"
    else:
        again = f"take the {wanted.name} made for this torch, or a constraint (-c FILE with torch=={before.version})"
    how = "has neither a pin nor an index here"
    if wanted.name != "torch" and wanted.requirement:
        how = f"{wanted.requirement.lstrip('=')} was made for another torch"
    elif wanted.name != "torch":
        how += ", and asks for a torch of its own"
    broken = broken_by(subject, change)
    rule = "torch-replaced-breaks" if broken else "torch-replaced"
    rule = "torch-of-module-replaced" if before.of_module and before.alone else rule
    rule = "torch-replaced-not-for-the-card" if isinstance(clash, Clash) else rule
    return raised(
        rule, wanted.line, name=wanted.name, how=how, broken=" and ".join(broken),
        other="that one" if wanted.requirement else "the newest one",
        torch=before.spoken.removeprefix("torch ") if before.version else f"({before.variant}, not released)",
        line_torch=before.line, lost=lost, again=again,
    )  # fmt: skip


def _fitting(name: str, torch: str) -> str | None:
    """The release of a package that was made for this torch."""
    row = extension_homes.wheel_for(name, torch) if torch else None
    return release_for(name, torch) or (row.version if row is not None and not row.and_later else None)


def _others(subject: Subject) -> Iterator[Raised]:
    """Ready-made packages beside torch: by the names of their files and pages, and by what their releases ask for."""
    made = environments_of(subject)
    ends = {each.spoken: each for state in made.final for each in state}
    last = next(iter(ends.values())) if len(ends) == 1 else None
    for found in subject.installs:
        own = next((each for each in made.every if each.order == found.item.order), None)
        torch = own if found.torch is not None else None
        torch = torch or last or own or next(iter(made.at(found.item)[-1:] if not subject.notes else ()), None)
        if found.verb not in ("install", "create"):
            continue
        if torch is None or torch.version is None:
            yield from _files_alone(subject, found)
            continue
        judged = partial(
            goes_with, torch=torch.version, line=torch.variant, python=torch.python, system=torch.system,
            on_card=bool(subject.gpus),
        )  # fmt: skip
        others = [each for each in found.wanted if each.wheel or each.name not in ("torch", "pytorch")]
        others = [each for each in others if each.applies(torch.system, torch.python)]
        listed = [each for each in others if each.source is None and not each.wheel]
        compiled = [each for each in listed if extension(each.name) and each.name not in PROJECTS]
        # In a list a page may serve a package whose marker leaves it out; a command names it for what it installs.
        paged = next(iter(compiled or (() if found.item.listed else listed)), None)
        for wanted in others:
            file = wanted.wheel or (wanted.labelled if wanted.name not in PROJECTS else None)
            built = built_for(file) if file else None
            if wanted.wheel and built and built.system != torch.system and (subject.notes or found.item.conditional):
                if not found.item.conditional and sum(bool(each.named(wanted.name)) for each in subject.installs) < 2:
                    words = f"whether this is for {built.system}, as `{wanted.wheel}` is"
                    yield raised("package-torch-unknown", wanted.line, sentence=words)
                continue  # somebody else's branch
            its = wanted.name == "torch"  # the torch itself is no companion of the one that comes later
            here = goes_here(built, python=torch.python, system=torch.system) if built and its else None
            answers: list[Judgement | None] = [here if its else judged(built)] if built else []
            answers += [judged(page) for page in found.pages if wanted is paged]
            exact = exact_text(wanted.requirement)
            named = found.torch is not None and found.torch.exact is not None
            # The torch that is there stays.
            same = named or found.has("--no-deps") or made.resolved_at_once(found)
            ranged = wanted.requirement if pins_torch(wanted.name) and wanted.name not in PROJECTS else None
            if exact and (cuda := CudaLine.parse(torch.variant)) is not None:
                answers.append(has_library(wanted.name, exact, cuda.cuda))
            if wanted.newest and asks_torch(wanted.name) and same:
                answers.append(package_goes_with(wanted.name, "", torch.version))
            if wanted.name not in PROJECTS and (exact or ranged):
                answer = package_goes_with(wanted.name, exact or ranged or "", torch.version)
                answers += [answer] if same else []
                if isinstance(answer, Unknown) and is_bound(wanted.name):
                    yield raised("package-torch-unknown", wanted.line, sentence=answer.missing)
            for page in found.pages if wanted is paged and not found.binary else ():
                behind = taken_from_page(wanted.name, wanted.requirement, page.torch or Version("0"))
                if isinstance(behind, Clash):
                    yield raised(
                        "page-behind", wanted.line, sentence=behind.sentence, name=wanted.name, source=behind.source
                    )
            clash = next((each for each in answers if isinstance(each, Clash)), None)
            ways = [each for each in subject.installs if each.item.conditional and each.named(wanted.name)]
            # Branches take one release or another of a package, by the torch that is there.
            if clash is not None and not (found.item.conditional and len(ways) > 1):
                more = clash.changes[0].text if clash.changes else "take the one made for this torch"
                yield raised(
                    "package-other-torch", wanted.line, sentence=clash.sentence, more=more, source=clash.source
                )


def _files_alone(subject: Subject, found: Install) -> Iterator[Raised]:
    """Files beside a torch that nobody knows: they are for one Python and one system all the same."""
    python, system = python_of(subject, found.item), subject.system(found.item)
    for wanted in found.wanted if python is not None and not found.item.conditional and not subject.notes else ():
        built = built_for(wanted.wheel) if wanted.wheel else None
        clash = goes_here(built, python=str(python), system=system) if built else None
        if clash is not None:
            more = "take the one made for this Python"
            yield raised("package-other-torch", wanted.line, sentence=clash.sentence, more=more, source=clash.source)


_NO_REQUIREMENT = {
    r"(?:[<>]=?|~=)[\w.]+\+": "a range takes no +label; write ==VERSION+label",
    r"(?<![=<>!~])=(?!=)": "versions are compared with ==, not with =",
    r"(?:[=<>!~]=|[<>])(?!v?\d)[A-Za-z]": "a version begins with a number",
}


def _local(subject: Subject) -> Iterator[Raised]:
    """`torch==2.0.1+cu118` is only on PyTorch's own index; a range takes no `+cu118` at all."""
    for found in subject.installs:
        lines = {line for word in found.item.words for line in re.findall(r"/whl/(cu\d{1,9}|cpu)\b", word.text)}
        paged = not (found.index or found.find) and any(word.text.endswith(".html") for word in found.item.words)
        alone = paged or environments_of(subject).has_no_index(found)
        for wanted in found.wanted if found.tool != "conda" and found.verb in ("install", "sync", "wheel") else ():
            requirement = wanted.requirement or ""
            reason = next((why for pattern, why in _NO_REQUIREMENT.items() if re.search(pattern, requirement)), None)
            if re.fullmatch(r"[\w.-]+,", wanted.raw.strip("\"'")):
                reason = "blanks stand between requirements, not commas"
            if re.search(r"\.txt\.?\Z", wanted.raw.strip("\"'")) and not (wanted.source or "").startswith("http"):
                reason = "a list of requirements is read with -r"
            plain = re.split(r"[;@\"']", wanted.raw)[0]
            if re.search(r"[\w.*\]]\s+[A-Za-z]|^[\w.-]+\s+\d", plain) and not re.search(r"\$\(|`", plain):
                reason = "each stands on a line of its own, and nothing before it"
            if reason is not None:
                yield raised("requirement-invalid", wanted.line, text=wanted.raw[:80], reason=reason)
            local = re.search(r"==[\w.]+\+(\w+)", requirement)
            if local and wanted.name in ("torch", *PROJECTS) and alone:
                listed = subject.document.dialect in LISTS or found.item.listed
                if re.search(r"(?i)constraints?\b[^\\/]*\Z", subject.document.name):
                    continue  # which only says what a command may take
                rule = "local-no-index-list" if listed else "local-no-index"
                index = index_of(local[1])
                yield raised(rule, wanted.line, text=f"{wanted.name}{requirement}", index=index)
                break
            if local and wanted.name in ("torch", *PROJECTS) and lines and local[1] not in lines and not found.find:
                shown, index = ", ".join(sorted(lines)), index_of(local[1])
                yield raised(
                    "local-other-index", wanted.line, text=f"{wanted.name}{requirement}", has=shown, index=index
                )
                break


def _channels(subject: Subject) -> Iterator[Raised]:
    """`pytorch-cuda` without the one channel that has it."""
    for found in subject.installs:
        wanted = found.named("pytorch-cuda") if found.tool == "conda" and found.verb != "uninstall" else None
        # conda asks the channel of `pytorch::torchvision` for every package of the command.
        named = (each.raw.rpartition("::")[0] for each in found.wanted)
        if wanted is None or any("pytorch" in each for each in (*found.channels, *named)):
            continue
        if not subject.says(r"channels.*\bpytorch\b|condarc"):
            yield raised("conda-channel-missing", wanted.line)


def _hidden(subject: Subject) -> Iterator[Raised]:
    """Packages that the only index of a command does not have."""
    for found in subject.installs:
        index = subject.only_pytorchs(found)
        names = [each for each in found.wanted if each.source is None and each.wheel is None] if index else []
        lacking = [each for each in names if not on_pytorchs_index(each.name)]
        if lacking:
            shown = ", ".join(dict.fromkeys(each.name for each in lacking[:4])) + (" …" if len(lacking) > 4 else "")
            yield raised("index-hides", lacking[0].line, index=index, names=shown)


_WITH_TORCH = re.compile(r"(?:^|/)(?:pytorch/pytorch|nvidia/pytorch|vllm/vllm-openai|nvidia/cuda)(?::|$)")


def _shown(subject: Subject) -> Iterator[Raised]:
    """CUDA_VISIBLE_DEVICES that hides the cards without saying so, and a container that is started without them."""
    for setting in subject.settings("CUDA_VISIBLE_DEVICES"):
        answer = shows_cards(setting.value)
        if setting.known and setting.value.strip("\"' ") not in ("", "-1") and isinstance(answer, Clash):
            yield raised("cards-hidden", setting.line, sentence=answer.sentence)
    for item in subject.trace.ran("docker", "podman"):
        words = [item.program, *item.arguments]
        with_torch = any(_WITH_TORCH.search(word) for word in words)
        if words[1:2] == ["run"] and with_torch and isinstance(answer := gets_cards(words), Clash):
            yield raised("run-without-cards", item.line, sentence=answer.sentence)


def _drivers(subject: Subject) -> Iterator[Raised]:
    """A driver that was told, or looked for, and does not drive the card."""
    place = subject.asked.place
    if place is None or not (place.driver or place.no_driver) or not place.cards:
        return
    torch = next(iter(environments_of(subject).every), None)
    line = subject.driver[1] if subject.driver else torch.line if torch else 1
    for each in cards_driven(place, window_of(place)):
        yield raised("driver-not-for-the-card", line, sentence=each.sentence, source=each.source)
    # On a card for servers NVIDIA's images start on older drivers of theirs, too.
    if place.driven_by is None or not all(card.name.startswith("GeForce") for card in place.cards):
        return
    most = newest_full(place.driven_by)
    for image in subject.trace.images[-1:]:
        cuda = Version.find((re.match(r"(?:docker\.io/)?nvidia/cuda:([\d.]+)", image.name) or ("", ""))[1])
        if cuda and most and cuda.major_minor > most.major_minor:
            of, asks = str(most.major_minor), str(cuda.major_minor)
            yield raised("image-needs-a-driver", image.line, driver=str(place.driven_by), cuda=asks, most=of)


def _kernels(subject: Subject) -> Iterator[Raised]:
    """A package no build of which has code for the card: neither a wheel nor an own compile helps."""
    named = {
        (wanted.line, wanted.name): wanted.requirement
        for found in subject.installs
        if found.verb in ("install", "wheel", "create")
        for wanted in found.wanted
        if wanted.source is None
    }
    compiled = any("--no-binary" in found.item.text for found in subject.installs)
    ready = set() if compiled else {*named}
    for step in subject.builds:
        rocm = any(re.search(r"\bgfx\d", own.value) for own in step.item.prefix)
        if step.what != "torch" and not rocm:
            named.setdefault((step.line, step.name), _tag(subject, step.item))
    for (line, name), requirement in named.items():
        yield from _kernel(subject, line, name, requirement, ready=(line, name) in ready)


def _tag(subject: Subject, item: Invocation) -> str | None:
    """The release that was checked out last before a build, as a requirement."""
    words = [word for each in subject.trace.ran("git") if each.order < item.order for word in each.arguments]
    tags = [match[1] for word in words if (match := re.fullmatch(r"(?:tags/)?v?(\d{1,9}(?:\.\d{1,9}){1,7})", word))]
    return f"=={tags[-1]}" if tags else None


def _kernel(subject: Subject, line: int, name: str, requirement: str | None, *, ready: bool) -> Iterator[Raised]:
    row = extension_homes.home_of_folder(name)
    below = re.search(r"<\s*(\d{1,9}(?:\.\d{1,9}){0,7})", requirement or "")
    if row is None or (below and row.begins_since is not None and Version(below[1]) <= row.begins_since):
        return  # an older release, which may have begun earlier
    for card in subject.gpus:
        if isinstance(answer := runs_on(name, exact_version(requirement), card), Clash):
            yield raised(
                "kernels-not-for-the-card", line, sentence=answer.sentence,
                instead=f". Instead: {row.instead}" if row.instead else "", source=row.source,
            )  # fmt: skip
        elif ready and isinstance(answer := wheel_runs_on(row.package, exact_version(requirement), card), Clash):
            yield raised("wheel-without-kernels", line, clash=answer.sentence, source=answer.source)
