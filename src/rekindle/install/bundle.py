"""A folder with what a machine without network needs: the plan, the wheels with their hashes, a list of the rest."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import msgspec

from rekindle.core import codec, files, python, run
from rekindle.core.command import Command, pip, rekindle
from rekindle.core.errors import FetchFailed
from rekindle.core.paths import sha256_of
from rekindle.core.untrusted import PlainFileName, Sha256
from rekindle.install.apply import request_of
from rekindle.install.installer import last_words, where_it_works
from rekindle.stack import plan as lock
from rekindle.stack.route import Verdict
from rekindle.stack.rules import RouteKind
from rekindle.stack.situation import place_words

_LONG = 3600.0


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
    """Collect it. What could not be fetched is an error, and the folder then holds what was, or is not there."""
    plan = lock.plan_of(verdict)
    wheels = folder / "wheels"
    made = [each for each in (wheels, folder) if not each.exists()]
    wheels.mkdir(parents=True, exist_ok=True)
    building = plan.route is RouteKind.SOURCE_BUILD
    there = place_words(msgspec.structs.replace(verdict.situation, here=False))
    torch = plan.torch if building else verdict.recommended.version
    again = rekindle("plan", *there, "--torch", str(torch), "--python", plan.python or "3.12", "--bundle", str(folder))
    try:
        if building:
            _download(plan, plan.requires, wheels, again)
        elif plan.route in (RouteKind.OFFICIAL_WHEEL, RouteKind.CPU_WHEEL):
            request = request_of(verdict.recommended)
            for words in request.steps:
                _download(plan, words, wheels, again)
    except FetchFailed:
        for each in made:
            with contextlib.suppress(OSError):  # it holds what was fetched before
                each.rmdir()
        raise
    found = tuple(
        BundledFile(name=PlainFileName(path.name), size=path.stat().st_size, sha256=sha256_of(path))
        for path in sorted(wheels.glob("*"))
    )
    pins = tuple(lock.PinnedWheel(name=each.name, sha256=each.sha256) for each in found)
    plan = msgspec.structs.replace(plan, wheels=pins)
    lock.write(plan, folder / "plan.toml")
    wanted = request_of(verdict.recommended).calls
    result = Bundle(
        folder=str(folder),
        plan="plan.toml",
        files=found,
        by_hand=_by_hand(plan),
        commands=(
            (rekindle("build", "plan.toml", "--bundle", ".", "--source", "pytorch", system=plan.system),)
            if building
            else tuple(
                pip("install", "--no-index", "--find-links", "wheels", *each, system=plan.system) for each in wanted
            )
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
    return (*([f"the driver: {plan.driver}"] if plan.driver else []), *pieces)


def _download(plan: lock.Plan, wanted: tuple[str, ...], folder: Path, again: Command) -> None:
    """For the plan's system and Python, whatever this machine is."""
    # 3.6 alone is 3.6.0 to pip, and torch asks for 3.6.2: any later patch release stands for the one that is there.
    words = ["--only-binary=:all:", "--python-version", f"{plan.python or '3.12'}.99"]
    words += [*python.for_system(plan.system, plan.machine), *wanted]
    result = run.call([*python.pip(sys.executable, "download"), "--dest", str(folder), *words], timeout=_LONG)
    if not result.ok:
        tail = last_words(result.err, result.out)
        where = next((word for word in wanted if word.startswith("https:")), "the configured package index")
        message = f"the wheels could not be downloaded from {where}\n{tail}"
        raise FetchFailed(message, hint=where_it_works(tail, [again]))
