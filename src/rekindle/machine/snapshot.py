"""A machine in a file: the facts for people, the raw answers for Rekindle, names and secrets taken out.

Reading one replays the raw answers through today's probes, on any system, so a better probe reads an old snapshot
better. A file with facts only (written by hand, or by another tool) is taken at its word.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from rekindle import __version__
from rekindle.core import codec
from rekindle.core.errors import BadInput
from rekindle.machine.host import Host, Recording, Replay
from rekindle.machine.model import Machine
from rekindle.machine.probe import look

SCHEMA = "rekindle.machine/1"


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    schema: str = SCHEMA
    rekindle: str = __version__
    machine: Machine | None = None
    recording: Recording | None = None


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

    files.write_text(path, codec.to_json(redacted(snapshot)) + "\n")


def load(path: Path) -> Machine:
    """The machine of a snapshot, as today's probes read its raw answers."""
    from rekindle.core import files

    return read(files.read_bytes(path), name=f"`{path}`")


def read(data: bytes | str, *, name: str = "the snapshot") -> Machine:
    head = codec.from_json(data, dict[str, Any], name=name)
    schema = head.get("schema")
    if schema != SCHEMA:
        message = (
            f"{name} is not a snapshot that this Rekindle reads: its schema is `{str(schema)[:60]}`, not `{SCHEMA}`"
        )
        raise BadInput(message, hint="write one with `rekindle doctor --save machine.json`")
    snapshot = codec.from_json(data, Snapshot, name=name)
    if snapshot.recording is not None:
        return look(Replay(snapshot.recording))
    if snapshot.machine is None:
        message = f"{name} holds neither facts nor raw answers"
        raise BadInput(message, hint="write one with `rekindle doctor --save machine.json`")
    return snapshot.machine


def redacted(snapshot: Snapshot) -> Snapshot:
    """The same without names, serial numbers and tokens. Doing it twice changes nothing."""
    from rekindle.core.redact import local_names

    names = local_names()
    return codec.from_builtins(_walk(codec.to_builtins(snapshot), names), Snapshot)


def _walk(value: Any, names: set[str]) -> Any:
    from rekindle.core.redact import redact

    if isinstance(value, str):
        return redact(value, names=names)
    if isinstance(value, dict):
        return {redact(key, names=names): _walk(item, names) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_walk(item, names) for item in value]
    return value
