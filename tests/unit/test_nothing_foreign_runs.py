"""A module in the current folder is not run because Rekindle starts a Python there, nor a program by its name."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from rekindle.core import processes, python
from rekindle.core.run import call
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


def test_verify_runs_nothing_of_the_current_folder(trapped: Path) -> None:
    needs_environments()
    seen = rekindle_command("verify", str(a_wheel(trapped / "in")), "--json")
    checks = {check["id"]: check["state"] for check in seen.json()["checks"]}
    assert ran(trapped) == []
    assert (checks["install"], checks["import"]) == ("PASS", "PASS"), seen.out


def test_verify_of_an_environment_runs_nothing_of_the_current_folder(trapped: Path) -> None:
    rekindle_command("verify", sys.executable)
    assert ran(trapped) == []


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
    allowed = {"core/command.py", "core/python.py", "build/configure/backends.py", "build/run/own_python.py"}
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
        assert processes.which("conda", path) is None
    assert str(processes.which("conda", str(tmp_path))).lower() == str(program).lower()


def test_on_windows_a_bare_name_is_never_left_to_the_system() -> None:
    """CreateProcess would look into the current folder before PATH."""
    with pytest.raises(FileNotFoundError):
        processes.command_line(["no-such-program-anywhere", "x"], {"PATH": r"C:\nowhere"})
