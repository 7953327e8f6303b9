r"""Scripts of `rekindle build --script`, run by Windows' `cmd`: exit codes, resuming, and folders whose names `cmd`
would like to read. The compiler is tcc, through the real cmake.exe and ninja.exe; Visual Studio, nvcc, venv and pip are
stand-ins.

Wine cannot vouch for: MSVC (the K40c's script stops at the first step that needs it, and says so), PowerShell (it has
none: `.ps1` files are parsed elsewhere, not run), what a parenthesis from a variable does inside a block (there are no
blocks), and a `%` in the name of the script's own folder: Wine reads `%~f0` twice, Windows does not.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
import studio
from programs import program, stand_in

from rekindle.build.configure import options
from rekindle.build.configure.render import cmd_value
from rekindle.build.configure.request import BuildRequest, Compiler
from rekindle.build.script import cmd as script_cmd
from rekindle.build.script import script, standalone_folder
from rekindle.core import run
from rekindle.core.version import Version
from rekindle.machine.toolchain import toolkits
from support import trees
from support.command import rekindle_command
from support.pace import seconds

MACHINES = Path(__file__).parent.parent / "machines"
ODD = "rk & (x86) 100% ^ ! "
CMAKE = """cmake_minimum_required(VERSION 3.20)
project(app C)
add_executable(app main.c)
install(TARGETS app DESTINATION app)
"""
MAIN = '#include <stdio.h>\nint main(void) { printf("it runs\\n"); return 42; }\n'


@pytest.fixture
def folder() -> Iterator[Path]:
    """On the drive itself: the user's temporary folder has letters outside ASCII, which a script may not hold."""
    made = Path(tempfile.mkdtemp(prefix=ODD, dir="C:\\"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def beside() -> Iterator[Path]:
    """For batch files that are not ours, and do not stand a `%` or a `^`: real ones do not either."""
    made = Path(tempfile.mkdtemp(prefix="Programs (x86) & ", dir="C:\\"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


def cmd(path: Path, *words: str, **extra: str) -> run.Result:
    """As a person starts it, from the folder it lies in."""
    env = {**os.environ, "PATH": f"{program('cmake').parent};{program('ninja').parent};{os.environ['PATH']}", **extra}
    return run.call([path, *words], env=env, cwd=path.parent, timeout=seconds(120))


def test_a_project_is_built_from_any_folder_fails_resumes_and_starts_again(
    folder: Path, beside: Path, tmp_path: Path
) -> None:
    home = tmp_path / "My Project (x86) & ^ ! Größe"
    (home / "src").mkdir(parents=True)
    (home / "src" / "CMakeLists.txt").write_text(CMAKE, encoding="utf-8")
    (home / "src" / "main.c").write_text(MAIN.replace("42", "oops"), encoding="utf-8")
    visual = studio.make(beside / "Visual Studio", "14.29.30133")
    cl = visual / "VC/Tools/MSVC/14.29.30133/bin/Hostx64/x64/cl.exe"
    request = BuildRequest(
        source="src",
        system="windows",
        arch="x86_64",
        python=sys.executable,
        name="app",
        version="1.0",
        backend="cmake",
        compiler=Compiler(
            kind="cl", cxx="cl", c="cl", cuda_host=str(cl), studio=str(visual), toolset=Version("14.29.30133")
        ),
        options={},
    )
    chosen = options.resolve(request, {"CMAKE_C_COMPILER": program("tcc").as_posix()}, allow_unknown=False)
    made = script.compose(request, chosen, work=str(folder / "w"), jobs=2, beside=True)
    build = home / "build.cmd"
    kits = {"PROGRAMFILES(X86)": str(studio.kits(beside))}
    build.write_bytes(script_cmd.text(made, "build.cmd").replace("\n", "\r\n").encode("ascii"))

    said = cmd(build, **kits)
    assert said.code == 1, said.out + said.err
    assert "FAILED in the step `compile`" in said.out and "main.c:2: error" in said.out
    assert "Visual Studio Developer Command Prompt" in said.out, "vcvarsall.bat was called in its odd folder"

    (home / "src" / "main.c").write_text(MAIN, encoding="utf-8")
    said = cmd(build, **kits)
    assert said.code == 0, said.out + said.err
    assert "configure   kept" in said.out and "compile     done" in said.out
    wheel = next((folder / "w" / "wheels").glob("app-1.0-py3-none-win*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
        archive.extract("app/app.exe", folder)
    assert run.call([folder / "app" / "app.exe"]).code == 42

    said = cmd(build, "--from", "package", "--until", "package", **kits)
    assert said.code == 0 and "compile     kept" in said.out and "package     done" in said.out
    assert sorted(path.name for path in folder.iterdir()) == ["app", "w"], "nothing else was made"
    assert sorted(path.name for path in home.iterdir()) == ["build.cmd", "src"]


def test_any_text_reaches_a_program_as_it_is(folder: Path) -> None:
    """As words and as variables, a hundred at a time: nothing in them is run, taken away or doubled."""
    random = Random(20261115)
    signs = "&|<>^%!()'`~@#$;,=+-{}[]*? ab\\\\/.:"
    values = [
        "100%",
        "%PATH%",
        "a & echo ran",
        "^",
        "!x!",
        "(x86)",
        "%%",
        "a^^b",
        "%1",
        "~",
        "a b\\",
        "=",
        ";",
        "x\\\\",
    ]
    values += ["".join(random.choice(signs) for _ in range(random.randint(1, 30))).strip() or "x" for _ in range(90)]
    show = folder / "show.py"
    told = "{'words': sys.argv[1:], 'set': [v for n, v in sorted(os.environ.items()) if n.startswith('RK_V')]}"
    show.write_text(f"import json, os, sys\nprint(json.dumps({told}))\n", encoding="utf-8")
    known = ((str(folder), "RK_FOLDER"),)
    lines = [
        "@echo off",
        "setlocal EnableExtensions DisableDelayedExpansion",
        f'set "RK_FOLDER={cmd_value(str(folder))}"',
    ]
    lines += [f'set "RK_V{number:03}={cmd_value(value)}"' for number, value in enumerate(values)]
    program = " ".join(script_cmd.word(each, known) for each in (sys.executable, str(show), f"-I={folder}"))
    batch = folder / "show.cmd"
    odd = [" ".join(script_cmd.word(value, known) for value in part) for part in (values[:50], values[50:])]
    lines += [f"{program} {words}\nif errorlevel 1 exit /b 9" for words in odd]
    batch.write_bytes("\n".join(lines).replace("\n", "\r\n").encode("ascii") + b"\r\n")
    said = cmd(batch)
    assert said.code == 0, said.out + said.err
    first, second = map(json.loads, said.out.splitlines())
    assert first["set"] == values
    assert first["words"] == [f"-I={folder}", *values[:50]]
    assert second["words"] == [f"-I={folder}", *values[50:]]


@pytest.mark.parametrize(("words", "code"), [(("--help",), 0), (("--nonsense",), 2), (("--from", "nothing"), 2)])
def test_arguments_have_exit_codes(kepler: Path, words: tuple[str, ...], code: int) -> None:
    said = cmd(kepler, *words)
    assert said.code == code
    assert "preflight" in said.out


@pytest.fixture
def work() -> Iterator[Path]:
    """Short and plain, as nvcc wants it."""
    made = Path(tempfile.mkdtemp(prefix="rk", dir="C:\\"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def kepler(tmp_path: Path, folder: Path, work: Path) -> Path:
    """The script for the recorded K40c machine: torch 1.12.1, CUDA 11.4, VS 2019; of the source a few files."""
    source = trees.pytorch(folder / "src", version="1.12.0a0")
    trees.write(source, trees.FLATBUFFERS)
    plan = tmp_path / "plan.toml"
    text = 'torch = "1.12.1"\ncuda = "11.4"\narch_list = "3.5"\ntoolset = "14.29"\n'
    plan.write_text(f"{text}python = '{sys.executable}'\nsource = '{source}'\n", encoding="utf-8")
    words = ["--machine", str(MACHINES / "k40c-windows.json"), "--work", str(work)]
    seen = rekindle_command("build", str(plan), *words, "--script", str(tmp_path / "build.cmd"))
    assert seen.code == 0, seen.err
    return tmp_path / "build.cmd"


def test_a_folder_that_is_not_the_users_own_is_not_written_into(kepler: Path, work: Path) -> None:
    """Wine makes neither links nor junctions: what such a file says of itself is stood in for."""
    assert standalone_folder.owner(work) in standalone_folder.ours()
    assert str(standalone_folder.owner(work)).startswith("S-1-5-")
    (kepler.parent / "json.py").write_text("raise SystemExit('planted')", encoding="utf-8")
    work.rmdir()
    work.write_text("in its place", encoding="utf-8")
    said = cmd(kepler)
    assert said.code == 4 and f"Cannot write to {work}" in said.out and "RK_WORK" in said.out, said.out + said.err
    work.unlink()
    assert cmd(kepler, "--until", "preflight", RK_FORCE="1").code == 0 and (work / "steps.py").is_file()


@pytest.mark.parametrize("place", ["above", "itself", "inside"])
def test_a_junction_is_refused(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    folder = work / "rk" / "w"
    (folder / "logs").mkdir(parents=True)
    junction = {"above": folder.parent, "itself": folder, "inside": folder / "logs"}[place]
    monkeypatch.setattr(standalone_folder, "is_link", lambda path: path == junction)
    monkeypatch.setenv("RK_WORK", str(folder))
    assert standalone_folder.own_folder() == standalone_folder.NOT_OURS
    assert f"{junction} is a link" in capsys.readouterr().out


def test_the_script_for_a_k40c_names_everything_that_is_missing_at_once(kepler: Path) -> None:
    said = cmd(kepler)
    assert said.code == 1
    assert "MISSING  Visual Studio" in said.out and "MISSING  MSVC toolset 14.29.30133" in said.out
    assert "MISSING  CUDA 11.4" in said.out
    assert "FAILED in the step `preflight`" in said.out


def test_the_script_for_a_k40c_goes_up_to_the_first_step_that_needs_msvc(
    kepler: Path, folder: Path, beside: Path
) -> None:
    text = kepler.read_bytes().decode("ascii")
    visual = studio.make(beside / "Visual Studio", "14.29.30133")
    nvcc = folder / "cuda" / "bin" / "nvcc.exe"
    # The last is what the real nvcc says of a `cl` that it cannot use.
    stand_in(
        nvcc,
        ("--version", "Cuda compilation tools, release 11.4, V11.4.152\n", 0),
        ("smoke.cu", "nvcc fatal   : Cannot find compiler 'cl.exe' in PATH\n", 1),
    )
    trees.write(folder / "cuda" / "include", dict.fromkeys(toolkits.HEADERS, ""))
    for name, value in (("RK_STUDIO", visual), ("RK_CUDA", nvcc.parent.parent)):
        old = next(line for line in text.splitlines() if line.startswith(f'set "{name}='))
        text = text.replace(old, f'set "{name}={str(value).replace("%", "%%")}"')
    kepler.write_bytes(text.encode("ascii"))
    packages = folder / "packages"
    stand_in(packages / "python.exe", ("pip", "installed\n", 0), ("freeze", "frozen\n", 0))
    (packages / "venv.py").write_text(VENV, encoding="utf-8")

    # Forced, for the disk of the bench may be smaller than a build; nothing else is missing.
    given = {"PYTHONPATH": str(packages), "PROGRAMFILES(X86)": str(studio.kits(beside)), "RK_FORCE": "1"}
    said = cmd(kepler, **given)
    assert said.code == 1, said.out + said.err
    assert "MISSING" not in said.out, said.out
    for step in ("preflight", "source", "python", "patch", "environment"):
        assert f"{step:<11} done" in said.out, said.out
    assert "distutils-vcenv: tools/build_pytorch_libs.py" in said.out
    assert "Cannot find compiler 'cl.exe' in PATH" in said.out
    assert "FAILED in the step `smoke`" in said.out
    again = cmd(kepler, **given)
    assert again.code == 1 and "patch       kept" in again.out and "FAILED in the step `smoke`" in again.out


VENV = """import pathlib, shutil, sys
target = pathlib.Path(sys.argv[-1], "Scripts")
target.mkdir(parents=True)
shutil.copy(pathlib.Path(__file__).with_name("python.exe"), target)
"""
