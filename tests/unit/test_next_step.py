"""What `doctor` prints under Next is typed to its end, for every recorded machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from rekindle import doctor
from rekindle.core.command import Command
from rekindle.machine import snapshot
from support.command import rekindle_command

_TESTS = Path(__file__).parents[1]
MACHINES = [*sorted((_TESTS / "machines").glob("*.json")), _TESTS / "data" / "from-0.2" / "machine.json"]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    venv = pytest.importorskip("venv", reason="UNVERIFIED: this Python has no venv (an embedded one)")
    place: Path = tmp_path_factory.mktemp("made") / "env"
    venv.create(place, with_pip=True)
    return place


@pytest.mark.parametrize("machine", MACHINES, ids=lambda path: path.stem)
def test_the_next_step_succeeds(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """The documents' machine was told to plan without itself: 14.39 was pinned where 14.29 was installed."""
    monkeypatch.chdir(tmp_path)
    step = doctor(machine).next
    assert step is not None and (step.commands or step.text)
    for command in step.commands:
        assert isinstance(command, Command)
        if command.words[:2] == ("rekindle", "plan"):
            assert rekindle_command(*map(str, command.words[1:])).code == 0, command
        elif command.words[:2] == ("rekindle", "build"):
            words = [*map(str, command.words[1:]), "--dry-run", "--machine", str(machine)]
            seen = rekindle_command(*words)
            # What the machine lacks was to be brought before; the snapshot does not have it yet.
            brought = seen.code == 6 and any(str(each).partition("  #")[0] in seen.err for each in step.commands)
            assert seen.code == 0 or brought, seen.err
        elif command.words[:2] == ("rekindle", "install") and len(command.words) < 4:
            # Alone it ends with 2 where no environment is active: it is made and named.
            here = snapshot.load(machine)
            assert [each.words[-1] for each in step.commands if "venv" in each.words] == [*command.words[2:]]
            assert command.words[2:] or (here.python is not None and here.python.kind != "system")
            monkeypatch.setattr(snapshot, "here", lambda here=here: here)
            seen = rekindle_command("install", str(request.getfixturevalue("environment")), "--dry-run")
            assert seen.code == 0, seen.err


def test_a_plan_keeps_the_toolsets_that_would_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["plan", "--gpu", "Tesla K40c", "--os", "windows", "--torch", "2.7.1", "--cuda", "11.8", "--python", "3.9"]
    assert rekindle_command(*words, "-o", "plan.toml").code == 0
    machine = next(path for path in MACHINES if path.stem == "k40c-ready-windows")
    seen = rekindle_command("build", "plan.toml", "--dry-run", "--machine", str(machine))
    assert seen.code == 0, seen.err
    assert rekindle_command(*words, "--toolset", "14.39", "-o", "plan.toml").code == 0
    refused = rekindle_command("build", "plan.toml", "--dry-run", "--machine", str(machine))
    assert refused.code != 0 and "14.39" in refused.err
