"""What `doctor` prints under Next is typed to its end, for every recorded machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from rekindle import doctor
from rekindle.core.command import Command
from support.command import rekindle_command

MACHINES = sorted((Path(__file__).parents[1] / "machines").glob("*.json"))


@pytest.mark.parametrize("machine", MACHINES, ids=lambda path: path.stem)
def test_the_next_step_succeeds(machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
