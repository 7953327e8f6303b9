"""Commands: what is pasted is what was meant: by sh for real, by PowerShell's grammar; cmd is in tests/windows."""

import json
import os
import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rekindle.core.command import Command, Shell, ShellVariable, dockerfile, pip_install, workflow_step
from rekindle.core.errors import BadInput
from support.powershell import words_of

_SIGNS = " \"'$`%!&^|<>()[]{};,*?#~=@\\/-+.:\n\tüß漢\u2018\u201d0aB"
words = st.lists(st.text(st.sampled_from(_SIGNS), max_size=12), max_size=6)


def _through_sh(line: str, **environment: str) -> list[str]:
    done = subprocess.run(
        ["sh", "-c", line], capture_output=True, check=True, env={"PATH": "/usr/bin:/bin", **environment}
    )
    return done.stdout.decode("utf-8").split("\0")[:-1]


_WITH_SH = pytest.mark.skipif(os.name == "nt", reason="there is no sh on Windows")


@_WITH_SH
@settings(max_examples=150, deadline=None)
@given(words)
def test_sh_hands_on_the_words(given_words):
    line = Command("printf", "%s\\0", "first", *given_words, shell=Shell.SH)
    assert _through_sh(line) == ["first", *given_words]


@_WITH_SH
@pytest.mark.parametrize("word", ["A=~root", "a:~root", "~root", "--prefix=~", "torch~=2.1", "C=/opt:~"])
def test_nobodys_home_stands_for_a_tilde(word):
    """`export X=a:~root` gave the home of root, and bash gives it in an argument too."""
    for shell in ("sh", "bash"):
        for line in (
            f"{Command('printf', '%s', word, shell=Shell.SH)}",
            f'{Command(environment={"X": word}, shell=Shell.SH)}; printf %s "$X"',
        ):
            done = subprocess.run([shell, "-c", line], capture_output=True, check=True, encoding="utf-8")
            assert done.stdout == word, (shell, line)


@settings(max_examples=150, deadline=None)
@example(["0%"])
@example(["--format=csv"])
@given(words)
def test_powershell_reads_the_words(given_words):
    """The parse of the line gives the same words; what Windows PowerShell hands on wrongly is refused."""
    try:
        line = Command("program", *given_words, shell=Shell.POWERSHELL)
    except BadInput:
        assert any(word == "" or '"' in word or word.endswith("\\") for word in given_words)
        return
    assert words_of(line) == ["program", *given_words]


def test_every_shell_has_the_same_plain_line():
    line = pip_install(["torch==2.14.1+cu126", "numpy<2"], index_url="https://download.pytorch.org/whl/cu126")
    assert {line.spell(shell) for shell in Shell} == {
        'pip install torch==2.14.1+cu126 "numpy<2" --index-url https://download.pytorch.org/whl/cu126'
    }


def test_a_program_with_spaces_is_called():
    call = pip_install(["torch"], python=r"C:\Comfy UI\python.exe")
    assert call.spell(Shell.POWERSHELL) == r'& "C:\Comfy UI\python.exe" -m pip install torch'
    assert call.spell(Shell.CMD) == r'"C:\Comfy UI\python.exe" -m pip install torch'


def test_variables_and_folders_in_each_shell():
    call = Command("tool", (ShellVariable("HERE"), "/a b"), environment={"MODE": "x y"}, folder="/t m/p", note="why")
    assert call.spell(Shell.SH) == 'cd "/t m/p" && MODE="x y" tool "$HERE/a b"  # why'
    assert call.spell(Shell.CMD) == 'cd /d "/t m/p" && set "MODE=x y" && tool "%HERE%/a b"  &rem why'
    assert call.spell(Shell.POWERSHELL) == (
        'Set-Location -LiteralPath "/t m/p"; $env:MODE = "x y"; tool "${env:HERE}/a b"  # why'
    )


def test_cmd_clears_what_is_to_be_cleared():
    """`set CC= && …` sets it to a blank."""
    assert Command(environment={"CC": None}).spell(Shell.CMD) == "set CC="
    assert Command(environment={"CC": None, "CXX": None}).spell(Shell.CMD) == 'set "CC=" && set "CXX="'
    assert Command("cmake", environment={"CC": None}).spell(Shell.CMD) == 'set "CC=" && cmake'


def test_gits_sh_on_windows_has_its_own_path(monkeypatch):
    """`C:\\CUDA\\bin;` before a PATH with colons hid every program."""
    from rekindle.core import command

    folder = r"C:\Program Files\CUDA\bin"
    monkeypatch.setattr(command, "_told", Shell.POWERSHELL)
    assert command.first_on_path(folder, system="windows") == rf'$env:PATH = "{folder};${{env:PATH}}"'
    monkeypatch.setattr(command, "_told", Shell.SH)
    assert command.first_on_path(folder, system="windows") == 'export PATH="/c/Program Files/CUDA/bin:$PATH"'
    assert command.first_on_path("/usr/local/cuda/bin", system="linux") == 'export PATH="/usr/local/cuda/bin:$PATH"'


def test_only_variables_to_set():
    call = Command(environment={"CC": "cl", "FLAGS": "-a -b"})
    assert call.spell(Shell.SH) == 'export CC=cl FLAGS="-a -b"'
    assert call.spell(Shell.CMD) == 'set "CC=cl" && set "FLAGS=-a -b"'
    assert call.spell(Shell.POWERSHELL) == '$env:CC = "cl"; $env:FLAGS = "-a -b"'


@_WITH_SH
def test_a_variable_is_filled_in_where_it_runs():
    assert _through_sh(Command("printf", "%s\\0", (ShellVariable("KEY"), "$(id)")).spell(Shell.SH), KEY="a b`id`") == [
        "a b`id`$(id)"
    ]


@pytest.mark.parametrize(
    ("place", "word"),
    [
        (lambda call: call.spell(Shell.CMD), "two\nlines"),
        (lambda call: call.spell(Shell.SH), "nul\0"),
        (lambda call: call.spell(Shell.POWERSHELL), 'a "quote"'),
        (lambda call: call.spell(Shell.POWERSHELL), ""),
        (dockerfile, "x\nRUN evil"),
        (workflow_step, "x${{ secrets.KEY }}"),
    ],
)
def test_what_a_place_cannot_carry_is_refused(place, word):
    with pytest.raises(BadInput):
        place(Command("program", word))


def test_a_dockerfile_runs_it_without_a_heredoc():
    assert dockerfile(Command("pip", "install", "numpy<2")) == 'RUN pip install "numpy<2"'
    assert json.loads(dockerfile(Command("x", "<<EOF", system="linux")).removeprefix("RUN ")) == ["x", "<<EOF"]


def test_a_text_of_a_file_is_only_shown():
    assert str(Command.parse("curl x | sh")) == "curl x | sh"
    assert Command.parse("curl x | sh").words == ()


def test_a_variable_has_a_name():
    with pytest.raises(BadInput):
        ShellVariable("A;id")
    with pytest.raises(BadInput):
        Command("x", environment={"A=b;id": "1"})


def test_a_made_up_name_is_never_repeated():
    """A snapshot's card called `K40c$(id)` was printed into a command that an assistant is told to repeat."""
    from rekindle.model.card import Capability
    from rekindle.stack.situation import Card, card_words

    kepler = (Capability(3, 5),)
    assert card_words([Card(name="Tesla K40c$(id)", capabilities=kepler)]) == ("--gpu", "sm_35")
    assert card_words([Card(name="EVGA Tesla K40c `id`", capabilities=kepler)]) == ("--gpu", "sm_35")
    assert card_words([Card(name='x" & calc', capabilities=kepler)]) == ("--gpu", "sm_35")
    assert card_words([Card(name="Tesla K40c", capabilities=kepler)]) == ("--gpu", "Tesla K40c")
    assert card_words([Card(name="Tesla K40c", capabilities=(Capability(6, 1),))]) == ("--gpu", "sm_61")


def test_quotes_that_a_shell_left_on_are_no_part_of_a_name():
    """On Windows a name may arrive with its quotes, and a command that repeats it must not have them twice."""
    from rekindle.stack.card import describe

    assert describe('"Tesla K40c"').next == 'rekindle plan --gpu "Tesla K40c"'
    assert describe("sm_61").next == "rekindle plan --gpu sm_61"
