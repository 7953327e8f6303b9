"""`--quiet`, `--verbose` and `--no-color`: every verb takes them, before or behind its name."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from rekindle.cli.main import VERBS, Verbs, cli, run
from rekindle.core import console
from rekindle.core.run import call

MACHINES = Path(__file__).parents[1] / "machines"


def leaves(command: click.Command, name: str) -> list[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        return [found for each, below in command.commands.items() for found in leaves(below, f"{name} {each}")]
    return [(name, command)]


def test_every_verb_takes_them() -> None:
    context = click.Context(cli)
    for verb in VERBS:
        found = Verbs.get_command(cli, context, verb)  # type: ignore[arg-type]
        assert found is not None
        for name, command in leaves(found, verb):
            options = [option for each in command.params for option in each.opts]
            for option in ("--quiet", "--verbose", "--no-color"):
                assert options.count(option) == 1, (name, option)


@pytest.mark.parametrize("words", [("-q", "plan"), ("plan", "--quiet")])
def test_quiet_leaves_the_answer_and_the_errors(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    question = ("--gpu", "GTX 1080 Ti", "--os", "linux", "-o", str(tmp_path / "plan.toml"))
    assert run(["plan", *question]) == 0
    loud = capsys.readouterr()
    assert "wrote" in loud.err
    assert run([*words, *question[:-1], str(tmp_path / "again.toml")]) == 0
    quiet = capsys.readouterr()
    assert quiet.out.replace("again.toml", "plan.toml") == loud.out and quiet.err == ""
    assert run([*words, "--gpu", "no such card"]) != 0
    assert capsys.readouterr().err.startswith("error: ")


def test_verbose_names_the_programs(capsys: pytest.CaptureFixture[str]) -> None:
    console.begin()
    console.talk(verbose=True)
    call(["git", "--version"])
    assert "git --version" in capsys.readouterr().err
    console.begin()
    call(["git", "--version"])
    assert capsys.readouterr().err == "", "the next command in this process starts anew"


def test_no_color_wins_over_the_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    doctor = ["doctor", "--machine", str(MACHINES / "k40c-windows.json")]
    run(doctor)
    assert "\x1b[" in capsys.readouterr().out
    run([*doctor, "--no-color"])
    assert "\x1b[" not in capsys.readouterr().out


def test_the_shell_completes_names_that_rekindle_reads() -> None:
    from click.shell_completion import ShellComplete

    from rekindle.knowledge.gpu import gpus

    def completed(words: list[str], incomplete: str) -> list[str]:
        found = ShellComplete(cli, {}, "rekindle", "_REKINDLE_COMPLETE").get_completions(words, incomplete)
        return [item.value for item in found]

    assert "gtx-1080-ti" in completed(["plan", "--gpu"], "gtx-1080")
    assert "tesla-k40c" in completed(["gpu"], "tesla-k4")
    assert "plan" in completed([], "pl")
    for name in completed(["gpu"], "")[::25]:
        gpus.find(name)


def test_a_verb_can_be_asked_for_any_number_of_times() -> None:
    """Each time its parser was wrapped once more, until Python's stack was spent."""
    context = click.Context(cli)
    first = Verbs.get_command(cli, context, "gpu")  # type: ignore[arg-type]
    assert first is not None
    parser = first.make_parser
    for _ in range(3):
        again = Verbs.get_command(cli, context, "gpu")  # type: ignore[arg-type]
        assert again is first and again.make_parser is parser
