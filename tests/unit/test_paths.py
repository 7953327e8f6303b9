"""Where Rekindle keeps its files is decided in one place, and `REKINDLE_CACHE` moves all of it."""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path

import pytest

import rekindle
from rekindle.cli.main import run
from rekindle.core import paths
from rekindle.core.errors import UsageError
from rekindle.knowledge.cuda import library_packages
from rekindle.model.platform import WINDOWS
from rekindle.wheels.repair import providers

SOURCE = Path(rekindle.__file__).parent


def test_audit_keeps_its_answers_in_the_named_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = tmp_path / "env"
    site = environment / "lib" / "python3.12" / "site-packages"
    site.mkdir(parents=True)
    (environment / "bin").mkdir()
    (environment / "bin" / "python").write_bytes(b"")
    (environment / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.12.1\n", encoding="utf-8")
    monkeypatch.setenv("REKINDLE_CACHE", str(tmp_path / "named"))
    run(["audit", str(environment), "--gpu", "Tesla K40c"])
    assert list((tmp_path / "named" / "audit").iterdir())


def test_a_package_that_repair_takes_libraries_from_lies_in_the_named_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = library_packages.providers("cudart64_12.dll", WINDOWS)[0]
    here = tmp_path / "providers" / row.wheel
    here.parent.mkdir()
    here.write_bytes(b"the very wheel")
    monkeypatch.setenv("REKINDLE_CACHE", str(tmp_path))
    monkeypatch.setattr(library_packages, "_hashes", lambda: {row.wheel: hashlib.sha256(b"the very wheel").hexdigest()})
    monkeypatch.setattr(providers, "call", lambda *_, **__: pytest.fail("pip was started"))
    assert providers.download(row) == here


def test_the_shelf_and_the_cache_are_where_the_variables_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REKINDLE_CACHE", str(tmp_path / "c"))
    monkeypatch.setenv("REKINDLE_SHELF", str(tmp_path / "s"))
    assert paths.cache_folder("build") == tmp_path / "c" / "build"
    assert paths.shelf_folder() == tmp_path / "s"


def test_the_hash_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"rekindle" * 300_000)
    assert paths.sha256_of(tmp_path / "f") == hashlib.sha256(b"rekindle" * 300_000).hexdigest()


@pytest.mark.parametrize(
    "said",
    ["platformdirs", "REKINDLE_CACHE", r"environ.*REKINDLE_SHELF", r'"windows" if (os|sys)\.', r'"amd64": "x86_64"'],
)
def test_no_other_module_decides_it_again(said: str) -> None:
    files = [path for path in SOURCE.rglob("*.py") if re.search(said, path.read_text(encoding="utf-8"))]
    assert [path.relative_to(SOURCE).as_posix() for path in files] in ([], ["core/paths.py"])


@pytest.mark.skipif(sys.platform != "linux", reason="only there the folders are worked out without platformdirs")
@pytest.mark.parametrize("set_to", [None, "", " ", "/somewhere/else"])
def test_the_folders_are_those_that_platformdirs_names(set_to: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    import platformdirs

    monkeypatch.delenv("REKINDLE_CACHE", raising=False)
    for variable in ("XDG_DATA_HOME", "XDG_CACHE_HOME"):
        if set_to is None:
            monkeypatch.delenv(variable, raising=False)
        else:
            monkeypatch.setenv(variable, set_to)
    assert paths.data_folder("shelf") == Path(platformdirs.user_data_dir("rekindle", appauthor=False), "shelf")
    assert paths.cache_folder("audit") == Path(platformdirs.user_cache_dir("rekindle", appauthor=False), "audit")


@pytest.mark.skipif(sys.platform != "linux", reason="Windows asks the system for the folders")
@pytest.mark.parametrize("home", ["~", ".", "nobody"])
def test_a_home_that_is_none_is_said_so(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv("HOME", home)
    with pytest.raises(UsageError, match="HOME"):
        paths.data_folder()
