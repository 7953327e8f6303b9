"""Behind a company's proxy: a real one with its own CA, in front of addresses that exist nowhere else."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from rekindle import plan
from rekindle.core import fetch
from rekindle.core.command import Command, Shell
from rekindle.core.errors import BadInput, FetchFailed
from support import small_wheels
from support.command import rekindle_command
from support.proxies import Proxy, proxy

PAGE = "https://files.behind.test/a/file"
INDEX = "download.pytorch.org/whl/cu126"


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name in (
        "PIP_CERT",
        "PIP_PROXY",
        "PIP_INDEX_URL",
        "PIP_EXTRA_INDEX_URL",
        "PIP_NO_INDEX",
        "PIP_FIND_LINKS",
        "CURL_CA_BUNDLE",
    ):
        monkeypatch.delenv(name, raising=False)
    settings = tmp_path / "pip.conf"
    settings.write_text("[global]\nretries = 0\ndisable-pip-version-check = true\n", encoding="utf-8")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(settings))
    monkeypatch.setattr(fetch, "_TRIES", 1)


@pytest.fixture
def company(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    with proxy(tmp_path, {"files.behind.test/a/file": b"here", **_wheels(tmp_path)}) as told:
        monkeypatch.setenv("HTTPS_PROXY", f"http://{told.address}")
        yield told


def _wheels(folder: Path) -> dict[str, bytes]:
    """An index with the three packages of a plan for a GTX 1080 Ti, each of one file."""
    pages = {}
    for pin in (word for word in _line().words if "==" in word):
        name, version = str(pin).split("==")
        info = f"{name}-{version}.dist-info"
        said = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode()
        tag = b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        files = {f"{name}/__init__.py": b"", f"{info}/METADATA": said, f"{info}/WHEEL": tag}
        made = small_wheels.make(folder / "wheels", files, name=f"{name}-{version}-py3-none-any.whl").read_bytes()
        file = f"{name}-{version.replace('+', '%2B')}-py3-none-any.whl"
        sha = hashlib.sha256(made).hexdigest()
        pages[f"{INDEX}/{name}/"] = f'<a href="{file}#sha256={sha}">{file.replace("%2B", "+")}</a>'.encode()
        pages[f"{INDEX}/{name}/{file}"] = made
    return pages


def _line() -> Command:
    """What `plan` says to paste."""
    (line,) = plan(gpus=["GTX 1080 Ti"], os="linux").recommended.commands
    assert isinstance(line, Command) and line.words[0] == "pip"
    return line


def test_our_own_fetching_goes_through_it(company: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(company.authority.file))
    assert fetch.fetch_small(PAGE, most=10) == b"here"
    assert company.asked == ["files.behind.test/a/file"]


def test_pips_own_settings_hold_for_it(company: Proxy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HTTPS_PROXY")
    settings = tmp_path / "pip.conf"
    settings.write_text(
        f"[global]\nproxy = http://{company.address}\ncert = {company.authority.file}\n", encoding="utf-8"
    )
    assert fetch.fetch_small(PAGE, most=10) == b"here"


def test_a_certificate_that_nobody_trusts_names_the_setting(company: Proxy, tmp_path: Path) -> None:
    with pytest.raises(FetchFailed, match=r"signed by nobody you trust.*SSL_CERT_FILE.* PIP_CERT .*GIT_SSL_CAINFO"):
        fetch.fetch_small(PAGE, most=10)
    assert company.asked == []


def test_a_setting_that_names_no_certificates_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "gone.pem"))
    with pytest.raises(BadInput, match=r"SSL_CERT_FILE names .*gone\.pem"):
        fetch.fetch_small(PAGE, most=10)


def test_a_proxy_with_a_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name and password in its address were not sent."""
    with proxy(tmp_path, {"files.behind.test/a/file": b"here"}, password="me:a secret") as told:
        monkeypatch.setenv("SSL_CERT_FILE", str(told.authority.file))
        monkeypatch.setenv("HTTPS_PROXY", f"http://{told.address}")
        with pytest.raises(FetchFailed, match="the proxy wants a name and a password"):
            fetch.fetch_small(PAGE, most=10)
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:a%20secret@{told.address}")
        assert fetch.fetch_small(PAGE, most=10) == b"here"


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    venv.create(tmp_path / "env", with_pip=True, symlinks=sys.platform != "win32")
    return tmp_path / "env"


def test_the_printed_line_goes_through_it(company: Proxy, environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Typed as it stands, with that environment's pip first on PATH."""
    programs = environment / ("Scripts" if sys.platform == "win32" else "bin")
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PIP_CERT", str(company.authority.file))
    line = _line().spell(Shell.CMD if sys.platform == "win32" else Shell.SH)
    done = subprocess.run(line, shell=True, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    assert "Successfully installed torch-" in done.stdout
    assert f"{INDEX}/torch/" in company.asked


def test_an_installation_without_the_certificate_names_the_setting(company: Proxy, environment: Path) -> None:
    seen = rekindle_command("install", str(environment), "--gpu", "H100")
    assert seen.code == 7
    assert "PIP_CERT" in seen.err and "the environment is unchanged" in seen.err
