"""A folder with what a machine without network needs: the plan, the wheels with their hashes, a list of the rest."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from rekindle.core import codec, files, python, run
from rekindle.core.command import Command, pip, rekindle
from rekindle.core.errors import FetchFailed
from rekindle.core.paths import sha256_of
from rekindle.core.untrusted import PlainFileName, Sha256
from rekindle.install.apply import request_of
from rekindle.install.installer import last_words
from rekindle.stack import plan as lock
from rekindle.stack.rules import RouteKind
from rekindle.stack.verdict import Verdict

_LONG = 3600.0
_TAGS = ("manylinux1", "manylinux2010", "manylinux2014", "manylinux_2_17", "manylinux_2_27", "manylinux_2_28")


class BundledFile(msgspec.Struct, frozen=True, kw_only=True):
    name: PlainFileName
    size: int
    sha256: Sha256


class Bundle(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `rekindle plan --bundle`. `by_hand` is what nobody may fetch for you, or what is not a wheel."""

    schema: str = "rekindle.bundle/1"
    folder: str
    plan: str
    files: tuple[BundledFile, ...]
    by_hand: tuple[str, ...]
    commands: tuple[Command, ...]


def bundle(verdict: Verdict, folder: Path) -> Bundle:
    """Collect it. What could not be fetched is an error, and the folder then holds what was."""
    plan = lock.plan_of(verdict)
    wheels = folder / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    building = plan.route is RouteKind.SOURCE_BUILD
    if building:
        _download(plan, plan.requires, None, wheels)
    elif plan.route is RouteKind.OFFICIAL_WHEEL:
        request = request_of(verdict.recommended)
        if request.first:
            _download(plan, request.first, None, wheels)
        _download(plan, request.requirements, request.index_url, wheels)
    found = tuple(
        BundledFile(name=PlainFileName(path.name), size=path.stat().st_size, sha256=sha256_of(path))
        for path in sorted(wheels.glob("*"))
    )
    pins = tuple(lock.PinnedWheel(name=each.name, sha256=each.sha256) for each in found)
    plan = msgspec.structs.replace(plan, wheels=pins)
    lock.write(plan, folder / "plan.toml")
    wanted = request_of(verdict.recommended).requirements
    result = Bundle(
        folder=str(folder),
        plan="plan.toml",
        files=found,
        by_hand=_by_hand(plan),
        commands=(
            (rekindle("build", "plan.toml", "--bundle", ".", "--source", "pytorch", system=plan.system),)
            if building
            else (pip("install", "--no-index", "--find-links", "wheels", *wanted, system=plan.system),)
        ),
    )
    files.write_text(folder / "bundle.json", codec.to_json(result))
    return result


def _by_hand(plan: lock.Plan) -> tuple[str, ...]:
    pieces = [f"{piece.need}: {piece.where}" for piece in plan.toolchain]
    if plan.route is RouteKind.SOURCE_BUILD:
        pieces.append(f"PyTorch's source: `rekindle source --torch {plan.torch} -o pytorch`, then copy the folder")
    if plan.route in (RouteKind.CONDA_FORGE, RouteKind.COMMUNITY, RouteKind.WSL, RouteKind.CONTAINER):
        pieces += plan.commands
    return (f"the driver: {plan.driver}", *pieces)


def _download(plan: lock.Plan, wanted: tuple[str, ...], index: str | None, folder: Path) -> None:
    """For the plan's system and Python, whatever this machine is."""
    command = python.pip(sys.executable, "download")
    command += ["--only-binary=:all:", "--dest", str(folder), "--python-version", plan.python or "3.12"]
    command += [word for platform in _platforms(plan) for word in ("--platform", platform)]
    command += ["--index-url", index] if index else []
    result = run.call([*command, *wanted], timeout=_LONG)
    if not result.ok:
        tail = last_words(result.err, result.out)
        message = f"the wheels could not be had from {index or 'the configured package index'}\n{tail}"
        spoken = pip("download", "--dest", "wheels", *wanted, *(("--index-url", index) if index else ()))
        raise FetchFailed(message, hint=f"where that index can be reached, run:\n  {spoken}")


def _platforms(plan: lock.Plan) -> tuple[str, ...]:
    if plan.system == "windows":
        return ("win_amd64",) if plan.machine == "x86_64" else ("win_arm64",)
    return tuple(f"{tag}_{plan.machine}" for tag in _TAGS)
