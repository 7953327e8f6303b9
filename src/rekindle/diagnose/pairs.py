"""What the tables say of the torch that a log names: the companions that belong to it, and what an index has."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rekindle.compat.companion import release_for
from rekindle.compat.judgement import Clash, Fits
from rekindle.compat.torch_python import takes
from rekindle.core.errors import RekindleError
from rekindle.core.version import Version
from rekindle.diagnose.facts import Facts, present
from rekindle.knowledge.torch import companions, releases
from rekindle.model.cuda_line import LINE, index_of
from rekindle.model.platform import Platform
from rekindle.model.torch_pin import CPU, TorchPin
from rekindle.stack import coverage

_SYSTEMS = ("linux", "windows")


def values(fields: Mapping[str, str], facts: Facts) -> dict[str, str]:
    story = _index(fields.get("package", ""), facts, fields.get("offered_first"))
    python = re.search(r"uv venv --python (3\.\d{1,9})", story or "")
    address = re.search(r"`--index-url (\S+)`", story or "")
    found = present(index_python=python and python[1], index_address=address and address[1])
    found |= present(pairing=_pairing(), index_story=story) | _parties(facts.demands)
    if facts.torch and facts.python:
        answer = takes(facts.torch, facts.python, facts.os or "linux")
        fitting = {each.what: each.value for each in answer.changes} if isinstance(answer, Clash) else {}
        found |= present(python_for_torch=fitting.get("python"), torch_for_python=fitting.get("torch"))
    if facts.torch:
        built = facts.variant if facts.variant != CPU else None
        pinned = _companions(facts.torch, built, facts.os) if built else None
        found |= {"companions": pinned, "variant": built} if pinned and built else _belonging(facts.torch)
        found |= _lines_of(facts.torch) | present(early_cuda=releases.newest_cuda(Version(facts.torch)))
    if "built_for" in fields and "built_variant" in fields:
        pinned = _companions(fields["built_for"], fields["built_variant"], facts.os)
        found |= present(
            built_set=pinned and f"torch=={TorchPin(fields['built_for'], fields['built_variant'])} {pinned}"
        )
    if "companion" in fields and "have_torch" in fields:
        found |= present(companion_fits=release_for(fields["companion"], fields["have_torch"]))
    return found


def _parties(demands: Sequence[str]) -> dict[str, str]:
    """Packages that pin different releases of torch, and the set of the one that is no companion's."""
    asked = {name: (version, torch) for name, version, torch in (each.split() for each in demands)}
    others = [torch for name, (_, torch) in asked.items() if name not in companions.PROJECTS]
    if len({torch for _, torch in asked.values()}) < 2 or not others:
        return {}
    said = [f"{name} {version} wants {torch}" for name, (version, torch) in asked.items()]
    fitting = [(name, release_for(name, others[0])) for name in asked if name in companions.PROJECTS]
    wanted = [f"torch=={others[0]}", *(f"{name}=={version}" for name, version in fitting if version)]
    return {"parties": _listed(said), "parties_torch": others[0], "parties_set": " ".join(wanted)}


def _belonging(torch: str) -> dict[str, str]:
    """The versions that go with a torch whose CUDA line is not known."""
    wanted = [(project, release_for(project, torch)) for project in companions.PROJECTS]
    named = [f"{project} {version}" for project, version in wanted if version]
    return present(belonging=" and ".join(named), vision_fits=release_for("torchvision", torch))


def _pairing() -> str:
    """The releases of torch with their torchvision, newest first: `2.9: 0.24`."""
    known = ((row.minor, release_for("torchvision", str(row.newest))) for row in reversed(releases.torch_releases()))
    said = [f"{minor}: {Version(version).major_minor}" for minor, version in known if version]
    return f"torch and torchvision {', '.join(said)}"


def _lines_of(torch: str) -> dict[str, str]:
    """The CUDA lines that a release has wheels of."""
    known = coverage.release(torch)
    names = [each.name for each in known.variants] if known else []
    return {"cuda_lines": _listed(names), "cuda_line": names[-1]} if names else {}


def _companions(torch: str, variant: str, system: str | None) -> str | None:
    """The requirements of torchvision and torchaudio for this torch, where they can be had on that system."""
    wanted = []
    for project in companions.PROJECTS:
        try:
            rows = [
                companions.companion(project, torch, Platform(each, "x86_64"), line=variant, python=None)
                for each in ([system] if system else _SYSTEMS)
            ]
        except RekindleError:
            return None
        versions = {row.version for row in rows if row is not None}
        if len(versions) == 1 and None not in rows:
            wanted.append(f"{project}=={versions.pop()}+{variant}")
    return " ".join(wanted) if wanted else None


def _index(package: str, facts: Facts, first: str | None) -> str | None:
    """What PyTorch's index of the log's name has, where that is why nothing was found. `first`: the oldest offered."""
    asked = re.fullmatch(rf"torch(?:==(\d{{1,9}}\.\d{{1,9}}\.\d{{1,9}})(?:\+({LINE}))?)?", package)
    if asked is None:
        return None
    if asked[1]:
        return _exact(asked[1], asked[2], facts, first)
    if facts.index is None:
        return None
    having = [row for row in releases.torch_releases() if row.variant(facts.index) is not None]
    if not having:
        newest = [variant.name for variant in releases.torch_releases()[-1].variants]
        return f"PyTorch has no index `{facts.index}`: the newest release has {_listed(newest)}."
    last = having[-1]
    return _pythons(last, facts, f"The index `{facts.index}` ends with torch {last.newest}, which")


def _exact(torch: str, variant: str | None, facts: Facts, first: str | None) -> str | None:
    """For which Pythons a release has wheels, and where those with a `+cu117` in their name are."""
    release = coverage.release(torch)
    if release is None:
        return None
    names = [each.name for each in release.variants]
    if facts.index is not None and variant is None:
        if facts.index in names:
            return _pythons(release, facts, f"The torch {torch} of the index `{facts.index}`")
        return f"torch {torch} has no index `{facts.index}`: it has {_listed(names)}."
    if variant is not None and variant not in names:
        return f"There is no torch {TorchPin(torch, variant)}: PyTorch made {_listed(names)} of it."
    known = release.pythons(facts.os or "linux")
    wanted = bool(known) and not (facts.python and isinstance(takes(torch, facts.python, facts.os or "linux"), Fits))
    told = f"The wheels of torch {torch} are for Python {known[0]} to {known[-1]} only" if wanted else ""
    where = (
        f"`+{variant}` is in PyTorch's own index only (`--index-url {index_of(variant)}`), for "
        "Linux and Windows; macOS has no CUDA"
        if variant and facts.index != variant
        else ""
    )
    offered = Version.find(first or "")
    if told and (not where or (offered is not None and offered > Version(torch))):
        told += f": make an environment with one of those (`uv venv --python {known[-1]}`), or ask for a release "
        told += "that has wheels for yours"
    story = "; ".join(part for part in (told, where) if part)
    return f"{story}." if story else None


def _pythons(release: releases.TorchRelease, facts: Facts, what: str) -> str | None:
    known = release.pythons(facts.os or "linux")
    if not known or (facts.python and isinstance(takes(release.newest, facts.python, facts.os or "linux"), Fits)):
        return None
    if facts.python is None:
        return f"{what} has wheels for Python {known[0]} to {known[-1]}: see what `python --version` says."
    return (
        f"{what} has wheels for Python {known[0]} to {known[-1]}, not for {facts.python}: make an environment with one "
        f"of those (`uv venv --python {known[-1]}`), or take the index of a newer CUDA."
    )


def _listed(names: Sequence[str]) -> str:
    return " and ".join(names) if len(names) < 3 else f"{', '.join(names[:-1])} and {names[-1]}"


def numpy_is_older(said: str) -> bool:
    """Whether NumPy is the older part: its own numbers say it. `dtype` shrank with NumPy 2, other types only grew."""
    api = re.search(r"compiled against \w+ version (0x[0-9a-f]+) but this version of numpy is (0x[0-9a-f]+)", said)
    if api:
        return int(api[1], 16) > int(api[2], 16)
    size = re.search(r"numpy\.(\w+) size changed.*Expected (\d{1,9})(?: from C header)?, got (\d{1,9})", said)
    if size:
        return size[1] != "dtype" and int(size[2]) > int(size[3])
    return "No module named 'numpy._core" in said
