"""The NVIDIA cards and their driver, from every source there is, and what they disagree on.

Order of trust: NVML, the CUDA driver, nvidia-smi, the PCI id, the name. All are asked; the first that knows answers,
and another that says something else is kept as a clash.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from rekindle.core.errors import BadInput, RekindleError
from rekindle.core.pattern import late
from rekindle.core.version import Version
from rekindle.knowledge.gpu import drivers
from rekindle.knowledge.tables import cached
from rekindle.machine.host import CouldNotRead, Run
from rekindle.machine.model import FoundDriver, FoundGpu
from rekindle.machine.system import windows
from rekindle.model.card import Capability

T = TypeVar("T")
Answers = dict[str, Any]
TRUST = ("nvml", "cuda", "nvidia-smi", "pci")
# What a source may say of a card. Anything else, or of another kind, is dropped: a snapshot can hold anything.
_KINDS: dict[str, type] = {
    "name": str,
    "bus": str,
    "pci_id": str,
    "capability": str,
    "memory": int,
    "driver_model": str,
    "problem": int,
    "module": str,
    "driver": str,
}

_MOST_CARDS = 64


class Graphics(msgspec.Struct, frozen=True, kw_only=True):
    gpus: tuple[FoundGpu, ...] = ()
    driver: FoundDriver | None = None
    troubles: tuple[str, ...] = ()
    """What a source said instead of an answer."""


def merge(run: Run, answers: Answers) -> Graphics:
    """One view from what each source answered."""
    seen = {source: _cards(answers.get(source)) for source in TRUST}
    _bounded(max(map(len, seen.values())))  # before they are compared with each other
    groups = [group for group in _grouped(seen) if any(group.values())]
    _bounded(len(groups))
    gpus = tuple(_card(group) for group in groups)
    return Graphics(gpus=gpus, driver=_driver(run, answers, seen["pci"]), troubles=_troubles(answers))


def _bounded(count: int) -> None:
    if count > _MOST_CARDS:
        message = f"{count} GPUs are listed, more than any computer has"
        raise BadInput(message, hint="write the snapshot again with `rekindle doctor --save machine.json`")


def _cards(answer: Any) -> list[dict[str, Any]]:
    cards = answer if isinstance(answer, list) else answer.get("gpus") if isinstance(answer, dict) else None
    rows = [card for card in cards if isinstance(card, dict)] if isinstance(cards, list) else []
    return [{key: card[key] for key, kind in _KINDS.items() if isinstance(card.get(key), kind)} for card in rows]


def _grouped(seen: dict[str, list[dict[str, Any]]]) -> list[dict[str, dict[str, Any]]]:
    """The same card in each source's words: by where it sits, else by its PCI id, else by its turn."""
    groups: list[dict[str, dict[str, Any]]] = []
    for source in TRUST:
        for turn, card in enumerate(seen[source]):
            home = next((group for group in groups if source not in group and _same(group, card)), None)
            if home is None and not _place(card) and turn < len(groups) and source not in groups[turn]:
                home = groups[turn] if _may_be(groups[turn], card) else None
            if home is None:
                groups.append({source: card})
            else:
                home[source] = card
    return groups


def _same(group: dict[str, dict[str, Any]], card: dict[str, Any]) -> bool:
    places = {_place(other) for other in group.values()} - {None}
    if _place(card) and places:
        return _place(card) in places
    ids = {other.get("pci_id") for other in group.values()} - {None}
    return card.get("pci_id") in ids if card.get("pci_id") else False


def _may_be(group: dict[str, dict[str, Any]], card: dict[str, Any]) -> bool:
    ids = {other.get("pci_id") for other in group.values()} - {None}
    return not (card.get("pci_id") and ids and card["pci_id"] not in ids)


def _place(card: dict[str, Any]) -> tuple[int, int, int] | None:
    """`00000000:41:00.0`, `0000:41:00.0` and `0000:41:00` are one place."""
    match = re.fullmatch(
        r"([0-9A-Fa-f]{1,8}):([0-9A-Fa-f]{1,2}):([0-9A-Fa-f]{1,2})(?:\.\d)?", str(card.get("bus") or "")
    )
    return (int(match[1], 16), int(match[2], 16), int(match[3], 16)) if match else None


def _card(group: dict[str, dict[str, Any]]) -> FoundGpu:
    name = _name(group)
    pci_id = _first(group, "pci_id")
    told = {
        source: capability
        for source, card in group.items()
        if (capability := _parsed(Capability.parse, card.get("capability")))
    }
    by_table, candidates = known(pci_id, name)
    told |= by_table
    source = next((source for source in (*TRUST, "name") if source in told), None)
    capability = told[source] if source else None
    place = next((place for card in group.values() if (place := _place(card))), None)
    return FoundGpu(
        name=name,
        pci_id=pci_id,
        bus=f"{place[0]:04x}:{place[1]:02x}:{place[2]:02x}.0" if place else None,
        capability=capability,
        capability_from=source,
        candidates=() if capability else candidates,
        memory=_first(group, "memory"),
        driver_model=_first(group, "driver_model"),
        problem=_first(group, "problem"),
        sources=tuple(group),
        clashes=tuple(
            f"{other} says compute capability {says}, {source} says {capability}"
            for other, says in told.items()
            if says != capability
        ),
    )


@cached
def known(pci_id: str | None, name: str | None) -> tuple[dict[str, Capability], tuple[Capability, ...]]:
    """What the tables say of a PCI id and of a name; and the candidates when a name stands for several."""
    from rekindle.knowledge.gpu import gpus

    told: dict[str, Capability] = {}
    candidates: tuple[Capability, ...] = ()
    for source, query in (("name", name), ("pci", pci_id)):
        if not query or (source == "name" and query.endswith("...")):
            continue
        try:
            match = gpus.find(query)
        except RekindleError:
            continue
        if len(match.capabilities) == 1:
            told[source] = match.capabilities[0]
        else:
            candidates = match.capabilities
    if "pci" in told:
        # A name sold with several chips says nothing against the id of the chip itself.
        told.pop("name", None)
    return told, candidates


def _name(group: dict[str, dict[str, Any]]) -> str | None:
    names = [str(group[source]["name"]) for source in TRUST if source in group and group[source].get("name")]
    whole = [name for name in names if not name.endswith("...") and "Basic Display" not in name]
    if whole:
        return whole[0]
    pci_id = _first(group, "pci_id")
    if pci_id:
        from rekindle.knowledge.gpu import gpus

        try:
            return gpus.find(pci_id).gpus[0].name
        except RekindleError:
            return None
    return names[0] if names else None


def _first(group: dict[str, dict[str, Any]], key: str) -> Any:
    return next(
        (group[source][key] for source in TRUST if source in group and group[source].get(key) is not None), None
    )


def _driver(run: Run, answers: Answers, cards: list[dict[str, Any]]) -> FoundDriver | None:
    versions, cudas = (
        {
            source: version
            for source in sources
            if isinstance(answers.get(source), dict) and (version := _parsed(Version, answers[source].get(key)))
        }
        for key, sources in (("driver", ("nvml", "nvidia-smi")), ("cuda", ("nvml", "cuda", "nvidia-smi")))
    )
    modules = [card.get("module") for card in cards if card.get("module")]
    if run.windows and not versions:
        number = next((drivers.of_windows(str(card["driver"])) for card in cards if card.get("driver")), None)
        if number:
            versions["pci"] = Version(number)
    if not run.windows:
        loaded = kernel_version(run.text("/proc/driver/nvidia/version"))
        if loaded:
            versions["kernel"] = loaded
    if not versions and not cudas and not modules:
        return None
    version = next(iter(versions.values()), None)
    return FoundDriver(
        version=version,
        cuda=next(iter(cudas.values()), None),
        sources=tuple(dict.fromkeys((*versions, *cudas))),
        clashes=tuple(f"{source} says driver {says}" for source, says in versions.items() if says != version),
        kernel_module=modules[0] if modules else ("nvidia" if "kernel" in versions else None),
    )


def kernel_version(text: str | None) -> Version | None:
    """The loaded module's version, `/proc/driver/nvidia/version`; after an update the libraries' may differ."""
    match = re.search(r"Kernel Module(?: for \S+)?\s+(\d{1,6}(?:\.\d{1,6}){1,3})(?![\d.])", text or "")
    return Version(match[1]) if match else None


def _parsed(parse: Callable[[str], T], text: Any) -> T | None:
    try:
        return parse(text) if isinstance(text, str) else None
    except ValueError:
        return None


def _troubles(answers: Answers) -> tuple[str, ...]:
    said = []
    for source, answer in answers.items():
        if isinstance(answer, CouldNotRead):
            said.append(f"{source}: {answer}")
        elif isinstance(answer, dict) and (answer.get("error") or answer.get("says")):
            said.append(f"{source}: {answer.get('error') or answer.get('says')}")
    return tuple(said)


_DEVICES = "/sys/bus/pci/devices"
_DISPLAY = ("0x0300", "0x0302", "0x0380")
_INSTANCE = late(r"PCI\\VEN_10DE&DEV_([0-9A-F]{4})", re.IGNORECASE)


def pci_devices(run: Run) -> list[dict[str, Any]]:
    return _windows(run) if run.windows else _linux(run)


def _linux(run: Run) -> list[dict[str, Any]]:
    cards = []
    for slot in run.names(_DEVICES):
        folder = f"{_DEVICES}/{slot}"
        # Almost every device on the bus is not a card: its class alone says so, and nothing more of it is read.
        kind = (run.text(f"{folder}/class") or "").strip()
        if not kind.startswith(_DISPLAY) or (run.text(f"{folder}/vendor") or "").strip() != "0x10de":
            continue
        device = (run.text(f"{folder}/device") or "").strip().removeprefix("0x")
        module = run.real(f"{folder}/driver").rsplit("/", 1)[-1] if run.exists(f"{folder}/driver") else None
        cards.append({"bus": slot, "pci_id": f"10de:{device.lower()}", "module": module})
    return cards


def _windows(run: Run) -> list[dict[str, Any]]:
    cards = []
    for device in run.told("pnp display devices", windows.nvidia_devices, list) or ():
        if not isinstance(device, dict):
            continue
        match = _INSTANCE.match(str(device.get("instance", "")))
        if match:
            cards.append(
                {
                    "pci_id": f"10de:{match[1].lower()}",
                    "name": device.get("name"),
                    "problem": device.get("problem"),
                    "driver": device.get("driver"),
                }
            )
    return cards
