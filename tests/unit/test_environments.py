"""One finder for every verb: without a name, `audit`, `verify`, `install` and the machine's probe mean one Python."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from rekindle.core.errors import NotFound, UsageError
from rekindle.core.version import Version
from rekindle.install.command import locate_environment
from rekindle.machine.host import Host
from rekindle.machine.python import interpreters
from rekindle.machine.python.environment import find, venv_config
from rekindle.wheels.verify import trial

venv = pytest.importorskip("venv", reason="UNVERIFIED: this Python has no venv (an embedded one)")
BIN = "Scripts" if os.name == "nt" else "bin"
NAME = "python.exe" if os.name == "nt" else "python"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("with space") / "my env"
    venv.create(root, with_pip=False, symlinks=os.name != "nt")
    site = find(root).site
    (site / "torch").mkdir()
    (site / "torch/__init__.py").write_text("", encoding="utf-8")
    (site / "pip-24.1.dist-info").mkdir()
    return root


def _nothing_active(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", path)


def test_with_none_active_every_verb_takes_the_python_on_path(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, `audit` and `install` took the Python that runs Rekindle, `verify` and `plan` the one on PATH."""
    _nothing_active(monkeypatch, str(made / BIN))
    assert Path(find().root) == made
    assert Path(trial.find(None).environment.root) == made
    assert Path(locate_environment(None).root) == made
    assert Path(interpreters.interpreters(Host())[0]) == made / BIN / NAME


def test_the_active_one_wins_over_path(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _nothing_active(monkeypatch, str(Path(sys.base_prefix) / BIN))
    monkeypatch.setenv("VIRTUAL_ENV", str(made))
    for found in (find(), trial.find(None).environment, locate_environment(None)):
        assert Path(found.root) == made


def test_the_folder_and_its_python_are_one_environment(made: Path) -> None:
    by_folder, by_python = find(made), find(made / BIN / NAME)
    assert by_folder == by_python
    assert by_folder.version == f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert (by_folder.kind, by_folder.pip) == ("venv", "24.1")


@pytest.mark.skipif(os.name == "nt", reason="a shim is a script on Linux")
def test_a_shim_is_asked_where_its_environment_is(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shim = tmp_path / "shims" / "python"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec "{made / BIN / NAME}" "$@"\n', encoding="utf-8")
    shim.chmod(0o755)
    _nothing_active(monkeypatch, f"{shim.parent}:/usr/bin:/bin")
    assert Path(find().root) == made
    assert Path(trial.find(None).environment.root) == made


@pytest.mark.skipif(os.name == "nt", reason="an executable bit")
def test_nothing_in_a_folder_that_is_named_is_run(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    trap = tmp_path / "bin/python"
    trap.write_text(f"#!/bin/sh\ntouch '{tmp_path}/ran'\n", encoding="utf-8")
    trap.chmod(0o755)
    with pytest.raises(NotFound, match="no site-packages"):
        find(tmp_path)
    (tmp_path / "lib/python3.11/site-packages").mkdir(parents=True)
    assert find(tmp_path).python == Version("3.11")
    assert not (tmp_path / "ran").exists()


def test_the_systems_python_is_not_installed_into(monkeypatch: pytest.MonkeyPatch) -> None:
    if sys.prefix == sys.base_prefix:
        pytest.skip("the tests run in the system's Python")
    _nothing_active(monkeypatch, str(Path(sys.base_prefix) / BIN))
    with pytest.raises(UsageError, match="no environment is active"):
        locate_environment(None)


@pytest.mark.skipif(os.name == "nt", reason="Debian's folders, and a link")
def test_debians_own_python_has_a_version_and_two_folders(tmp_path: Path) -> None:
    for folder in ("bin", "lib/python3/dist-packages", "local/lib/python3.13/dist-packages"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "bin/python3.13").touch()
    (tmp_path / "bin/python3").symlink_to("python3.13")
    found = find(tmp_path)
    assert found.python == Version("3.13")
    assert [Path(folder).parent.name for folder in found.site_packages] == ["python3", "python3.13"]


def test_a_venv_that_sees_the_systems_packages(tmp_path: Path) -> None:
    windows = os.name == "nt"
    base, root = tmp_path / "base", tmp_path / "env"
    site = "Lib/site-packages" if windows else "lib/python3.11/site-packages"
    for folder in (base, root):
        (folder / site).mkdir(parents=True)
    home = base if windows else base / "bin"
    for said, count in (("true", 2), ("false", 1)):
        text = f"home = {home}\ninclude-system-site-packages = {said}\nversion = 3.11.7\n"
        (root / "pyvenv.cfg").write_text(text, encoding="utf-8")
        found = find(root)
        assert found.site == root / site
        assert [Path(folder) for folder in found.site_packages] == [root / site, base / site][:count]


def test_an_environment_of_another_system_can_be_read_and_not_run(tmp_path: Path) -> None:
    if os.name == "nt":
        (tmp_path / "lib/python3.11/site-packages").mkdir(parents=True)
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin/python").touch()
    else:
        (tmp_path / "Lib/site-packages").mkdir(parents=True)
        (tmp_path / "python.exe").touch()
        (tmp_path / "python311.dll").touch()
    assert find(tmp_path).version == "3.11"
    with pytest.raises(NotFound, match="nothing can be run"):
        trial.find(tmp_path)


@pytest.mark.parametrize("home", ["//evil/share/bin", "\\\\evil\\share"])
def test_an_environment_names_no_other_computer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    """Windows logs on to the host of such a path; the active environment is the user's own."""
    (tmp_path / "pyvenv.cfg").write_text(f"home = {home}\nversion = 3.11.4\n", encoding="utf-8")
    assert "home" not in venv_config(tmp_path) and venv_config(tmp_path)["version"] == "3.11.4"
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path))
    assert venv_config(tmp_path)["home"] == home
