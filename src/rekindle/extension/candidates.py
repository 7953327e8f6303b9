"""A ready-made wheel for an environment: is there one on the index that serves the cards and fits the torch?

pip says which file it would take; of that file only headers are read, by range requests where the server allows them,
and it is fetched when it serves.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from rekindle.core import python as own_python
from rekindle.core import run
from rekindle.core.errors import RekindleError
from rekindle.core.findings import Finding, State, passed, unverified, warned
from rekindle.core.paths import architecture
from rekindle.extension.check import ForTorch, link_to, served_by
from rekindle.machine.model import InstalledTorch
from rekindle.model.card import NamedCard
from rekindle.model.environment import Environment
from rekindle.model.platform import Platform

_FETCHING = 1800.0
_ASKING = 300.0
# What pip would take, without the file: `install --dry-run` fetches it whole where the index has no metadata beside it.
# Its own parts, as they are in pip 21.3 to 26.3; where one is missing the answer is UNVERIFIED.
_BEST = """
import logging.config
import sys
from pip._internal.cli.cmdoptions import make_target_python
from pip._internal.commands import create_command
from pip._internal.utils.logging import setup_logging
from pip._vendor.packaging.requirements import Requirement
setup_logging(verbosity=0, no_color=True, user_log_file=None)
index = create_command("index")
options, (_, wanted) = index.parse_args(sys.argv[1:])
with index.main_context():
    session, target = index._build_session(options), make_target_python(options)
    finder = index._build_package_finder(options, session, target, False)
    finder.format_control = options.format_control
    asked = Requirement(wanted)
    best = finder.find_best_candidate(asked.name, asked.specifier).best_candidate
print(best.link.url_without_fragment if best else "")
"""
_ASK = ("--no-input", "--retries", "2", "--only-binary=:all:")


def candidate(
    requirement: str,
    environment: Environment,
    torch: InstalledTorch,
    cards: Sequence[NamedCard],
    work: Path,
    tell: Callable[[str], None],
) -> tuple[Path | None, Finding | None]:
    """The wheel, when it serves, and what was found. Neither: the index has no wheel of it for this Python."""
    folder = work / "index"
    own, version = Platform(environment.os, architecture()), environment.version or ""
    told = on_index(requirement, (), environment=environment, python=version, place=own).place
    address = told if isinstance(told, str) and told.startswith(("http://", "https://")) else None
    wheel = None if address else _fetched(requirement, environment, folder)
    where: str | Path | None = address or wheel
    if where is None:
        tell(f"no wheel of {requirement} for this Python on the index: pip would build it from source")
        return None, None
    name = unquote(urlsplit(str(where)).path).rpartition("/")[2] if address else Path(where).name
    try:
        finding = _judged(where, name, torch, cards)
    except RekindleError as problem:
        # A server without range requests: the whole file then.
        wheel = wheel or _fetched(requirement, environment, folder)
        if wheel is None:
            finding = unverified("extension.index", f"{name}: {problem.message}")
        else:
            finding = _judged(wheel, name, torch, cards)
    tell(finding.found)
    if finding.state is not State.PASS:
        return None, finding
    return wheel or _fetched(requirement, environment, folder), finding


class IndexAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Where the wheel lies that pip would take. `reached` False: no index answered."""

    place: str | Path | None
    reached: bool


def on_index(
    requirement: str, switch: Sequence[str], *, environment: Environment | None, python: str, place: Platform
) -> IndexAnswer:
    """Which wheel pip would take for an environment, or for a Python and a system that need not be these.

    A list that `switch` names is asked alone: what the index has beside it is not the list's.
    """
    alone, env = _alone(switch)
    words = [*_ASK, *alone]
    program = environment.interpreter if environment is not None and environment.here and environment.pip else None
    if program is None:
        words += [*own_python.for_system(place.system, place.arch), "--python-version", python]
    script = own_python.isolated(program or sys.executable, "-c", _BEST, *words, "versions", requirement)
    result = run.call(script, env=env, timeout=_ASKING)
    told = result.out.strip() if result.ok else ""
    reached = result.ok and "Retrying" not in result.err and "onnection" not in result.err
    return IndexAnswer(place=told or None, reached=bool(told) or reached)


def _alone(switch: Sequence[str]) -> tuple[list[str], Mapping[str, str]]:
    """pip's words and environment for one list and nothing else: variables stand above its settings."""
    page = next((word for word in switch if word.startswith("http")), None)
    if page is None:
        return [], os.environ
    if "-f" in switch:
        return ["--no-index"], {**os.environ, "PIP_FIND_LINKS": page}
    return ["--index-url", page], {**os.environ, "PIP_EXTRA_INDEX_URL": page}


def _judged(where: str | Path, name: str, torch: InstalledTorch, cards: Sequence[NamedCard]) -> Finding:
    targets, wrong, *_ = served_by(where, cards)
    if not targets:
        return warned("extension.index", f"{name} on the index has no GPU code")
    if wrong:
        return warned("extension.index", f"{name} on the index {'; '.join(wrong)}")
    reason = link_to(where, ForTorch(torch.version, torch.cuda, installed=torch)).wrong
    if reason:
        return warned("extension.index", f"{name} on the index does not fit: {reason}")
    return passed("extension.index", f"{name} on the index supports the GPUs")


def _fetched(requirement: str, environment: Environment, folder: Path) -> Path | None:
    folder.mkdir(exist_ok=True)
    words = ["download", "-q", "--no-deps", "--only-binary=:all:", "-d", str(folder), requirement]
    assert environment.interpreter is not None
    # pip of the environment that an extension is built for, so that its index, proxy and certificates hold.
    result = run.call(own_python.pip(environment.interpreter, *words), env=os.environ, timeout=_FETCHING)
    return next(iter(folder.glob("*.whl")), None) if result.ok else None
