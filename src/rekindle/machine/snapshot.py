"""A machine in a file: the facts for people, the raw answers for Rekindle, names and secrets taken out.

Reading one replays the raw answers through today's probes, on any system, so a better probe reads an old snapshot
better. A file with facts only (written by hand, or by another tool) is taken at its word.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from rekindle import __version__
from rekindle.core import codec, console
from rekindle.core.errors import BadInput, did_you_mean
from rekindle.core.pattern import late
from rekindle.inputs.system import read_system
from rekindle.knowledge.gpu.gpus import find
from rekindle.machine.gpu.cards import known
from rekindle.machine.host import Host, Recording, Replay
from rekindle.machine.model import PARTS, FoundGpu, Machine, Unread
from rekindle.machine.probe import look

SCHEMA = "rekindle.machine/1"
_MOST, _MOST_CARDS = 1_000, 256
_LINE_ENDS = late(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    schema: str = SCHEMA
    rekindle: str = __version__
    machine: Machine | None = None
    recording: Recording | None = None


_BY_HAND = (
    f'{{"schema": "{SCHEMA}", "machine": {{"os": "linux", "arch": "x86_64", "gpus": [{{"name": "Tesla V100"}}]}}}}'
)


def save_here(path: Path) -> Machine:
    """Writes this computer's snapshot; gives back the machine as it is, for its own user to read."""
    host = Host()
    machine = look(host)
    save(Snapshot(machine=machine, recording=host.recording), path)
    return machine


def here(meanwhile: Callable[[], object] | None = None) -> Machine:
    """This computer, not recorded and not redacted: what it has stays here.

    `meanwhile` is done while programs are being waited for.
    """
    return look(Host(), meanwhile=meanwhile)


def save(snapshot: Snapshot, path: Path) -> None:
    from rekindle.core import files
    from rekindle.core.redact import secrets

    # As a text once more: what stands beside a name says what it is.
    files.write_text(path, secrets(codec.to_json(redacted(snapshot))) + "\n")


def load(path: Path) -> Machine:
    """The machine of a snapshot, as today's probes read its raw answers."""
    from rekindle.core import files

    return read(files.read_bytes(path), name=f"`{path}`")


def read(data: bytes | str, *, name: str = "the snapshot") -> Machine:
    head = codec.from_json(data, dict[str, Any], name=name)
    hint = f"`rekindle doctor --save machine.json` writes one; by hand it is {_BY_HAND}"
    codec.expect(head.get("schema"), SCHEMA, "a snapshot that this Rekindle reads", name=name, hint=hint)
    snapshot = codec.from_json(data, Snapshot, name=name)
    if snapshot.recording is not None:
        machine = _possible(look(Replay(snapshot.recording)), name)
        if snapshot.machine is not None and snapshot.rekindle == __version__:
            _say_if_edited(snapshot.machine, machine, name)
        return machine
    if snapshot.machine is None:
        message = f"{name} says nothing of a machine: it has neither `machine` nor `recording`"
        raise BadInput(message, hint=hint)
    _say_if_misspelt(head["machine"], name)
    machine = _written_down(_possible(snapshot.machine, name))
    # Who leaves it out has not said that there is none.
    unsaid = [probe for probe in PARTS if probe not in head["machine"]] + ["driver"] * bool(machine.gpus)
    told = [Unread(probe=each, reason=f"{name} does not say") for each in unsaid if each not in head["machine"]]
    return msgspec.structs.replace(machine, unread=(*machine.unread, *told))


def _possible(machine: Machine, name: str) -> Machine:
    """A computer that there can be: the work for each of its parts is small, a hundred thousand cards are not."""
    crowded = [what for what in Machine.__struct_fields__ if _many(getattr(machine, what)) > _MOST]
    numbers = (machine.processor.cores, machine.processor.physical)
    if crowded or _many(machine.gpus) > _MOST_CARDS or any(number is not None and number < 1 for number in numbers):
        what = crowded[0] if crowded else "gpus" if _many(machine.gpus) > _MOST_CARDS else "processor"
        raise BadInput(f"{name} describes no computer that there is: `machine.{what}`", hint="write it anew there")
    return machine


def _many(value: Any) -> int:
    return len(value) if isinstance(value, tuple) else 0


def _say_if_misspelt(typed: dict[str, Any], name: str) -> None:
    """A key of tomorrow breaks no snapshot; one that somebody typed wrongly would be dropped without a word."""
    fields = Machine.__struct_encode_fields__
    for key in sorted(typed.keys() - set(fields)):
        console.say(
            f"{name}: `machine.{key[:40]}` is not known, and not used; {did_you_mean(key, fields)}".rstrip("; ")
        )


def _say_if_edited(written: Machine, read: Machine, name: str) -> None:
    """The facts of a recorded machine are for people: what somebody changes there would be dropped without a word."""
    for fact in ("os", "arch", "gpus", "driver"):
        if getattr(written, fact) != getattr(read, fact):
            console.say(
                f"{name}: `machine.{fact}` was changed and is not used, because the file holds what was recorded; "
                "take `recording` out of it to be taken at your word"
            )


def _written_down(machine: Machine) -> Machine:
    """Facts that somebody may have typed: a system as `--os` takes it, cards by their names. Each is one line."""
    plain = codec.with_texts(codec.to_builtins(machine), partial(_LINE_ENDS.sub, " "))
    machine = codec.from_builtins(plain, Machine)
    place, around = read_system(machine.os), machine.surroundings
    known = {
        "release": around.release or place.spoken,
        "glibc": around.glibc or place.glibc,
        "libc": around.libc or place.libc,
        "distribution": around.distribution or place.distribution,
        "wsl": around.wsl or ("2" if place.wsl else None),
    }
    return msgspec.structs.replace(
        machine,
        os=place.system,
        gpus=tuple(_completed(gpu) for gpu in machine.gpus),
        surroundings=msgspec.structs.replace(around, **known),
    )


def _completed(gpu: FoundGpu) -> FoundGpu:
    """A card that somebody wrote down by its name or PCI id alone."""
    query = gpu.pci_id or gpu.name
    if gpu.capability is not None or gpu.candidates or query is None:
        return gpu
    find(query)
    told, candidates = known(gpu.pci_id, gpu.name)
    source = next(iter(told), None)
    capability = told[source] if source else None
    return msgspec.structs.replace(gpu, capability=capability, capability_from=source, candidates=candidates)


def redacted(snapshot: Snapshot) -> Snapshot:
    """The same without names, serial numbers and tokens. Doing it twice changes nothing."""
    from rekindle.core.redact import local_names, redact

    plain = codec.with_texts(codec.to_builtins(snapshot), partial(redact, names=local_names()))
    return codec.from_builtins(plain, Snapshot)


# They change from minute to minute and explain nothing.
_RESTLESS = frozenset({"memory.available", "disks.free", "unread"})


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """`what` is the fact, `first` and `second` what each side has of it; None where it has nothing."""

    what: str
    first: str | None
    second: str | None


def differences(first: Machine, second: Machine) -> tuple[Difference, ...]:
    one, other = _facts(first), _facts(second)
    found = [
        Difference(what=name, first=one.get(name), second=other.get(name))
        for name in dict.fromkeys((*one, *other))
        if one.get(name) != other.get(name)
    ]
    return (*path_differences(first, second), *found)


def path_differences(first: Machine, second: Machine) -> tuple[Difference, ...]:
    """Entries of PATH that only one has; and, when both have the same ones, the first that changed its turn."""
    one, other = _path(first), _path(second)
    ones, others = set(one), set(other)
    found = [Difference(what="PATH entry", first=entry, second=None) for entry in one if entry not in others]
    found += [Difference(what="PATH entry", first=None, second=entry) for entry in other if entry not in ones]
    common = [entry for entry in one if entry in others]
    turned = [entry for entry in other if entry in ones]
    if common != turned:
        place = next(turn for turn, entry in enumerate(common) if turned[turn] != entry)
        what = f"PATH order, from entry {place + 1} of those in both"
        found.append(Difference(what=what, first=common[place], second=turned[place]))
    return tuple(found)


def _path(machine: Machine) -> list[str]:
    text = next((value for name, value in machine.environment.items() if name.upper() == "PATH"), "")
    return [entry for entry in text.split(";" if machine.os == "windows" else ":") if entry]


def _facts(machine: Machine) -> dict[str, str]:
    found: dict[str, str] = {}
    _flatten("", codec.to_builtins(machine), found)
    return {
        name: value
        for name, value in found.items()
        if name.split("[")[0] not in _RESTLESS and not _restless(name) and name.upper() != "ENVIRONMENT.PATH"
    }


def _restless(name: str) -> bool:
    plain = "".join(part.split("]")[-1] for part in name.split("["))
    return plain in _RESTLESS


def _flatten(name: str, value: Any, found: dict[str, str]) -> None:
    """Lists of things are told apart by what they are, not by their turn, so that one more moves none of the rest."""
    if isinstance(value, dict):
        for key, item in value.items():
            _flatten(f"{name}.{key}" if name else key, item, found)
    elif isinstance(value, (list, tuple)) and any(isinstance(item, dict) for item in value):
        for turn, item in enumerate(value):
            _flatten(f"{name}[{_identity(item, turn)}]", item, found)
    elif isinstance(value, (list, tuple)):
        if value:
            found[name] = ", ".join(str(item) for item in value)
    elif value is not None:
        found[name] = str(value)


def _identity(item: Any, turn: int) -> str:
    if isinstance(item, dict):
        for key in ("root", "bus", "role", "path", "name"):
            if item.get(key):
                return str(item[key])
    return str(turn)
