"""A module in the current folder is not run because Rekindle starts a Python there, nor a program by its name."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path

import pytest

from rekindle.cli.main import run
from rekindle.core import processes, programs, python
from rekindle.core.errors import MissingTool, NotFound
from rekindle.core.run import call
from rekindle.install import conda
from rekindle.machine.python import environment
from support import small_wheels
from support.artefacts import needs_environments
from support.command import rekindle_command

TRAPS = ("venv", "pip", "ensurepip", "json", "torch", "site", "sitecustomize", "usercustomize", "importlib", "demo")


@pytest.fixture
def trapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder full of modules that leave a mark when they are run. Rekindle itself is imported before."""
    folder = tmp_path / "downloads"
    folder.mkdir()
    for name in TRAPS:
        text = f"import sys\nopen({str(tmp_path / 'ran')!r}, 'a').write({name!r} + chr(10))\nsys.exit(7)\n"
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    # Whoever puts the current folder there has asked for it.
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.chdir(folder)
    return tmp_path


def ran(root: Path) -> list[str]:
    mark = root / "ran"
    return mark.read_text(encoding="utf-8").split() if mark.exists() else []


def a_wheel(folder: Path) -> Path:
    files = {
        "harmless/__init__.py": b"x = 1\n",
        "demo-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n",
        "demo-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    return small_wheels.make(folder, files, name="demo-1.0-py3-none-any.whl")


def test_the_traps_work(trapped: Path) -> None:
    call([sys.executable, "-m", "venv", trapped / "env"])
    assert ran(trapped)


@pytest.mark.parametrize("words", [("-m", "venv", "-h"), ("-m", "pip", "--version"), ("-c", "import json, venv")])
def test_an_isolated_python_runs_none_of_them(trapped: Path, words: tuple[str, ...]) -> None:
    """Also where there is no venv or pip at all (the embedded Python of Windows): the trap is not taken for it."""
    call(python.isolated(sys.executable, *words))
    python.ask(sys.executable, *words, env=os.environ, timeout=120)
    assert ran(trapped) == []


def test_a_process_of_our_own_takes_no_module_of_the_current_folder(trapped: Path) -> None:
    """Workers of a fleet are started so: `python -m` would run a `rekindle` or a `json.py` that lies there."""
    fake = trapped / "downloads" / "rekindle"
    fake.mkdir()
    (fake / "__init__.py").write_text(f"open({str(trapped / 'ran')!r}, 'a').write('rekindle')\n", encoding="utf-8")
    said = call(python.own("rekindle", "--version"), timeout=120)
    assert said.ok, said.err
    assert "rekindle" in said.out
    assert ran(trapped) == []


@pytest.mark.long
def test_verify_runs_nothing_of_the_current_folder(trapped: Path) -> None:
    needs_environments()
    seen = rekindle_command("verify", str(a_wheel(trapped / "in")), "--json")
    checks = {check["id"]: check["state"] for check in seen.json()["checks"]}
    assert ran(trapped) == []
    assert (checks["install"], checks["import"]) == ("PASS", "PASS"), seen.out


def test_verify_of_an_environment_runs_nothing_of_the_current_folder(trapped: Path) -> None:
    rekindle_command("verify", sys.executable)
    assert ran(trapped) == []


@pytest.mark.long
def test_install_runs_nothing_of_the_current_folder(trapped: Path) -> None:
    needs_environments()
    made = call(python.isolated(sys.executable, "-m", "venv", str(trapped / "env")), timeout=120)
    assert made.ok, made.err
    wheel = a_wheel(trapped / "in")
    rekindle_command("install", str(trapped / "env"), "--wheel", str(wheel), "--dry-run")
    rekindle_command("install", str(trapped / "env"), "--gpu", "Tesla V100", "--dry-run")
    assert ran(trapped) == []


def test_every_python_is_started_in_one_place() -> None:
    """`-m` and `-c` are spelled where it is made sure that the current folder is not looked at."""
    import re

    import rekindle

    source = Path(rekindle.__file__).parent
    allowed = {"core/command.py", "core/python.py", "build/configure/backends.py", "build/run/own_python.py",
               "build/graft/backend.py"}  # fmt: skip
    for path in source.rglob("*.py"):
        name = path.relative_to(source).as_posix()
        if name.startswith("build/script/") or name in allowed:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            assert not re.search(r"(sys\.executable|interpreter|program|python|inner)\b[^\n]*\"-(m|c)\"", line) or (
                "isolated(" in line or "ask(" in line or "conda" in line or "Command(" in line or "by_pip_of(" in line
            ), f"{name}:{number}"


def test_a_program_of_that_name_in_the_current_folder_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / ("conda.bat" if os.name == "nt" else "conda")
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.chdir(tmp_path)
    for path in ("", os.curdir, f"{os.pathsep}/nowhere", f"/nowhere{os.pathsep}"):
        assert programs.which("conda", path) is None
    assert str(programs.which("conda", str(tmp_path))).lower() == str(program).lower()


def test_on_windows_a_bare_name_is_never_left_to_the_system() -> None:
    """CreateProcess would look into the current folder before PATH."""
    with pytest.raises(FileNotFoundError):
        processes.command_line(["no-such-program-anywhere", "x"], {"PATH": r"C:\nowhere"})


# --- commands that only read -----------------------------------------------------------------------------------------


@pytest.fixture
def an_environment(tmp_path: Path) -> Path:
    """A stranger's environment with a torch: its python leaves a mark, and so does what a real one would import."""
    root = tmp_path / "env"
    site = root / "lib" / "python3.11" / "site-packages"
    (site / "torch" / "lib").mkdir(parents=True)
    (site / "torch" / "version.py").write_text("__version__ = '2.6.0+cu124'\ncuda = '12.4'\n", encoding="utf-8")
    (root / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.2\n", encoding="utf-8")
    a_python(root / "bin" / "python", tmp_path)
    return root


def a_python(place: Path, tmp_path: Path) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(f"#!/bin/sh\necho python >> {tmp_path}/ran\n", encoding="utf-8")
    place.chmod(0o755)
    return place


@pytest.fixture
def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What was started, by whichever thread."""
    import subprocess

    started: list[object] = []

    def popen(command: object, *args: object, **options: object) -> None:
        started.append(command)
        raise FileNotFoundError(2, "not started", str(command))

    monkeypatch.setattr(subprocess, "Popen", popen)
    return started


@pytest.mark.parametrize("words", [("verify", "--no-run"), ("verify", "--no-run", "--gpu", "V100"), ("audit",)])
@pytest.mark.parametrize("what", ["", "bin/python"])
def test_an_environment_is_read_and_nothing_started(
    an_environment: Path, nothing_starts: list[object], words: tuple[str, ...], what: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    code = run([*words, str(an_environment / what), "--json"])
    answer = json.loads(capsys.readouterr().out)
    if words[0] == "verify":
        assert (code, answer["subject"]) == (9 if "--gpu" not in words else 8, str(an_environment))
    else:
        assert (code, answer["torch"]["version"]) == (0, "2.6.0+cu124")
    assert nothing_starts == []


@pytest.mark.parametrize("words", [("audit",), ("verify", "--no-run"), ("inspect", "x.so", "--against")])
@pytest.mark.parametrize("name", ["python", "bin/python", "invoice"])
def test_a_file_is_not_run_to_ask_what_it_is(
    tmp_path: Path, nothing_starts: list[object], words: tuple[str, ...], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words, str(a_python(tmp_path / "folder" / name, tmp_path))]) == NotFound.exit_code
    assert "is not a Python environment" in capsys.readouterr().err
    assert nothing_starts == []


@pytest.mark.skipif(os.name == "nt", reason="a shim is a shell script here")
def test_audit_does_not_ask_a_shim_but_says_so(
    tmp_path: Path, nothing_starts: list[object], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The environment that runs Rekindle would be another one than is meant."""
    shim = a_python(tmp_path / "shims" / "python", tmp_path)
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(shim.parent))
    assert run(["audit"]) == NotFound.exit_code
    assert str(shim) in capsys.readouterr().err
    assert nothing_starts == []


def test_a_python_that_is_a_link_is_found_by_where_it_leads(an_environment: Path, nothing_starts: list[object]) -> None:
    if os.name == "nt":
        pytest.skip("UNVERIFIED: not everybody may make links there")
    (an_environment / "pyvenv.cfg").unlink()
    (an_environment.parent / "shims").mkdir()
    link = an_environment.parent / "shims" / "python3"
    link.symlink_to(an_environment / "bin" / "python")
    with programs.reads_only():
        assert environment.find(link).root == str(an_environment)
    assert nothing_starts == []


def test_threads_that_only_read_start_nothing_either(nothing_starts: list[object]) -> None:
    from rekindle.machine.host import each
    from rekindle.machine.probe import graphics

    with programs.reads_only():
        assert not any(said.started for said in each(lambda word: call([sys.executable, word]), ["-V", "-h"]))
        graphics()
        with pytest.raises(PermissionError):
            processes.Started([sys.executable])
    assert nothing_starts == []


# --- programs that lie where one stands ------------------------------------------------------------------------------


@pytest.fixture
def programs_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One stands in a folder with programs that leave a mark; PATH names it by `.`, by nothing and by a name."""
    folder = tmp_path / "downloads"
    for name in ("nvidia-smi", "nvcc", "git", "g++", "gcc", "cmake", "ninja", "conda", "python", "python3", "sh"):
        a_python(folder / name, tmp_path)
        a_python(folder / "bin" / name, tmp_path)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", f".:bin::./bin:{os.environ['PATH']}:")
    for name in ("CUDA_HOME", "VIRTUAL_ENV"):
        monkeypatch.setenv(name, ".")
    return tmp_path


@pytest.mark.skipif(os.name == "nt", reason="the programs are shell scripts; the rules for Windows are tried below")
@pytest.mark.parametrize(
    "words",
    [("doctor",), ("env",), ("verify", sys.executable), ("source", "--torch", "1.13.0", "--mirror", ".")],
)
def test_no_program_of_the_folder_one_stands_in_is_started(programs_here: Path, words: tuple[str, ...]) -> None:
    rekindle_command(*words)
    assert ran(programs_here) == []


@pytest.mark.skipif(os.name == "nt", reason="a shell script")
def test_what_a_program_starts_is_not_taken_from_there_either(programs_here: Path) -> None:
    said = call(["/bin/sh", "-c", "nvcc >&2; echo $PATH"])
    assert ran(programs_here) == []
    assert all(entry.startswith("/") for entry in said.out.strip().split(":"))


def test_where_a_program_may_be_on_windows() -> None:
    path = r'.;;tools;C:tools;\tools;"C:\a b";C:\CUDA\bin;C:\CUDA\bin'
    found = list(programs.places("nvcc", path, windows=True))
    assert found == [
        rf"{folder}\nvcc{end}" for folder in (r"C:\a b", r"C:\CUDA\bin") for end in (".exe", ".bat", ".cmd")
    ]
    assert list(programs.places("nvcc.exe", r"C:\x", windows=True)) == [r"C:\x\nvcc.exe"]
    assert list(programs.places("nvcc", "bin:./bin::/usr/bin:/usr/bin", windows=False)) == ["/usr/bin/nvcc"]


def test_a_probe_names_programs_by_their_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rekindle.machine.host import Host

    a_python(tmp_path / "nvcc", tmp_path)
    monkeypatch.chdir(tmp_path)
    for program in ("nvcc", "./nvcc", str(Path("..", tmp_path.name, "nvcc"))):
        assert not Host().command(program).started
    assert ran(tmp_path) == []


@pytest.mark.skipif(os.name == "nt", reason="the variables are Linux's, and a script is its program")
def test_no_variable_names_a_program_by_where_one_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`VIRTUAL_ENV=venv` made `install` run a stranger's Python, `NVCC_CCBIN=./gcc` made nvcc run that."""
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "venv" / "bin" / "python"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\nexit 3\n", encoding="utf-8")
    program.chmod(0o755)
    named = {"NVCC_CCBIN": "./gcc", "CC": "gcc -m64", "CXX": "/usr/bin/g++", "LD_LIBRARY_PATH": ".::/usr/lib"}
    said = call(["/usr/bin/env"], env=named).out
    assert said.splitlines() == ["CC=gcc -m64", "CXX=/usr/bin/g++", "LD_LIBRARY_PATH=/usr/lib"]
    (tmp_path / "gcc").mkdir()
    folders = {
        "NVCC_CCBIN": "gcc",
        "NVCC_PREPEND_FLAGS": "-ccbin=./g++",
        "NVCC_APPEND_FLAGS": "-DX=a/b -I./x",
        "CC": "gcc",
    }
    folders |= {"CXX": "ccache ./g++", "CUDAHOSTCXX": "bin/g++", "XDG_CONFIG_HOME": "cfg", "XDG_DATA_HOME": "/data"}
    said = call(["/usr/bin/env"], env=folders).out
    assert said.splitlines() == ["NVCC_APPEND_FLAGS=-DX=a/b -I./x", "CC=gcc", "XDG_DATA_HOME=/data"]
    (tmp_path / "my tools").mkdir()
    (own := tmp_path / "my tools" / "gcc").write_text("", encoding="utf-8")
    assert call(["/usr/bin/env"], env={"CC": str(own)}).out == f"CC={own}\n"
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.setenv(variable, "venv")
        assert Path(environment.find(None).root) != tmp_path / "venv"
    monkeypatch.setenv("CONDA_EXE", "./conda")
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(MissingTool, match="not on PATH"):
        conda.program()
