"""`rekindle install` into a real virtual environment, with small wheels: what is kept, refused, put back."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from filelock import FileLock

from rekindle.core import paths
from rekindle.core.errors import (
    ChecksFailed,
    FetchFailed,
    Locked,
    MissingTool,
    NoRoute,
    NotFound,
    StepFailed,
    UsageError,
)
from rekindle.core.version import Version
from rekindle.install import apply, record
from rekindle.install import command as verb
from rekindle.install.beside import fitting
from rekindle.install.command import locate_environment
from rekindle.install.installer import Pip, Request
from rekindle.model.card import Capability
from rekindle.model.environment import Environment
from rekindle.stack.route import Route
from rekindle.stack.rules import RouteKind
from rekindle.stack.situation import Wish, situation_from_options
from support import small_wheels
from support.artefacts import unverified
from support.fatbins import container

TAG = f"cp{sys.version_info[0]}{sys.version_info[1]}"
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
PLATFORM = "win_amd64" if os.name == "nt" else f"linux_{platform.machine()}"
K80 = (Capability(3, 7),)
KEPLER = container("sm_37", "sm_50", "sm_60") * 3
PASCAL = container("sm_60", "sm_70") * 3


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("install") / "my env"
    venv.create(folder, with_pip=True)
    return folder


@pytest.fixture
def env(made: Path) -> Iterator[Environment]:
    """The environment, and a check that the test left nothing behind in it."""
    environment = locate_environment(made)
    before = _everything(made)
    yield environment
    while list(environment.folder.glob("undo-*")):
        apply.undo(environment)
    for name in ("torch", "torchvision"):
        found = record.installed(environment.site).get(name)
        if found:
            record.remove(found, environment.site, made)
    assert _everything(made) == before


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of small wheels that stands in for the index."""
    folder = tmp_path / "wheels"
    torch(folder, "2.7.1+cu118", KEPLER)
    torch(folder, "2.8.0", PASCAL)
    vision(folder, "0.22.1", "2.7.1")
    vision(folder, "0.23.0", "2.8.0")
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "PIP_CONFIG_FILE": os.devnull}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    return folder


def test_what_arrives_is_inspected_kept_and_undone(
    env: Environment, house: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = record.freeze(record.installed(env.site))
    report = apply.install(env, route("2.7.1", "cu118", torchvision="0.22.1"), Pip(env), K80)
    assert report.state == "installed"
    assert report.coverage == {"3.7": "SERVES"}
    assert {each.name: each.after for each in report.changes} == {"torch": "2.7.1+cu118", "torchvision": "0.22.1"}
    constraints = Path(env.root) / "rekindle-constraints.txt"
    assert "torch==2.7.1+cu118" in constraints.read_text(encoding="utf-8")

    # Later runs of the environment's own pip, without being told anything, leave that torch in place. Only the
    # configuration of the environment itself may help here.
    monkeypatch.delenv("PIP_CONFIG_FILE")
    pip(env, "install", "-U", "torchvision")
    pip(env, "install", "-U", "torchvision", "torch")
    assert versions(env)["torch"] == "2.7.1+cu118"
    assert versions(env)["torchvision"] == "0.22.1"

    undone = apply.undo(env)
    assert {each.name for each in undone.changes} == {"torch", "torchvision"}
    assert record.freeze(record.installed(env.site)) == before
    assert not constraints.exists()
    assert not env.folder.exists()


def test_what_goes_in_by_itself_comes_without_what_it_names(env: Environment, house: Path) -> None:
    """An old torchaudio pins a torch of another line: it is installed last, alone, and undone with the rest."""
    _wheel(house, "torchaudio", "0.9.1", {"torchaudio/__init__.py": b""}, "Requires-Dist: torch==1.9.1\n")
    before = record.freeze(record.installed(env.site))
    wanted = msgspec.structs.replace(route("2.7.1", "cu118"), afterwards=("torchaudio==0.9.1",))
    report = apply.install(env, wanted, Pip(env), K80)
    assert {each.name: each.after for each in report.changes} == {"torch": "2.7.1+cu118", "torchaudio": "0.9.1"}
    assert report.commands[-1].words[-3:] == ("install", "--no-deps", "torchaudio==0.9.1")
    apply.undo(env)
    assert record.freeze(record.installed(env.site)) == before


def test_after_ctrl_c_the_same_command_goes_on_with_what_has_arrived(
    env: Environment, house: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("REKINDLE_CACHE", str(tmp_path / "cache"))
    fetched: list[str] = []
    fetch = Pip._fetch

    def until_interrupted(self: Pip, item: Any, index: Any, folder: Path, request: Any) -> None:
        if fetched and len(fetched) == 1:
            fetched.append("interrupted")
            raise KeyboardInterrupt
        fetched.append(item.name)
        fetch(self, item, index, folder, request)

    monkeypatch.setattr(Pip, "_fetch", until_interrupted)
    before = record.freeze(record.installed(env.site))
    wanted = route("2.7.1", "cu118", torchvision="0.22.1")
    with pytest.raises(KeyboardInterrupt):
        apply.install(env, wanted, Pip(env), K80)
    assert record.freeze(record.installed(env.site)) == before
    assert apply.install(env, wanted, Pip(env), K80).state == "installed"
    # The first wheel was fetched once, in the run that was broken off.
    assert sorted(fetched) == ["interrupted", "torch", "torchvision"]
    assert not list((tmp_path / "cache" / "downloads").glob("*/*.whl"))


def test_what_was_replaced_comes_back_byte_for_byte(env: Environment, house: Path) -> None:
    pip(env, "install", "torch==2.8.0")
    (Path(env.root) / "pip.conf").write_text("[global]\ntimeout = 7\n", encoding="utf-8")
    try:
        before = _everything(Path(env.root))
        apply.install(env, route("2.7.1", "cu118"), Pip(env), K80)
        text = (Path(env.root) / "pip.conf").read_text(encoding="utf-8")
        assert "timeout = 7" in text
        assert "rekindle-constraints.txt" in text
        assert versions(env)["torch"] == "2.7.1+cu118"
        apply.undo(env)
        assert _everything(Path(env.root)) == before
    finally:
        (Path(env.root) / "pip.conf").unlink()


def test_a_wheel_without_the_cards_code_changes_nothing(env: Environment, house: Path) -> None:
    before = _everything(Path(env.root))
    with pytest.raises(ChecksFailed, match=r"does not serve 3\.7"):
        apply.install(env, route("2.8.0", None), Pip(env), K80)
    assert _everything(Path(env.root)) == before


def test_a_failed_install_leaves_the_environment_as_it_was(env: Environment, house: Path) -> None:
    pip(env, "install", "torch==2.8.0")
    before = _everything(Path(env.root))

    class Breaks(Pip):
        def install(self, request: Request, folder: Path) -> None:
            super().install(request, folder)
            (env.site / "torch" / "lib" / "libtorch_cuda.fatbin").write_bytes(b"half a file")
            raise StepFailed("the disk is full")

    with pytest.raises(StepFailed, match="the disk is full"):
        apply.install(env, route("2.7.1", "cu118"), Breaks(env), K80)
    assert _everything(Path(env.root)) == before


def test_an_index_that_cannot_be_reached_shows_the_command(env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    before = _everything(Path(env.root))
    nowhere = route("2.14.1", "cu126", index="http://127.0.0.1:9/whl/cu126", numpy=None)
    with pytest.raises(FetchFailed) as failed:
        apply.install(env, nowhere, Pip(env), K80)
    assert "pip install torch==2.14.1+cu126 --index-url http://127.0.0.1:9/whl/cu126" in (failed.value.hint or "")
    assert _everything(Path(env.root)) == before


def test_a_wheel_of_ones_own_through_the_verb(env: Environment, house: Path) -> None:
    wheel = next(house.glob("torch-2.7.1*"))
    dry = verb.install(Path(env.root), verb.InstallRequest(gpus=("Tesla K80",), wheel=wheel, dry_run=True))
    assert dry.state == "would-install"
    assert "torch" not in versions(env)
    report = verb.install(Path(env.root), verb.InstallRequest(gpus=("Tesla K80",), wheel=wheel))
    assert (report.route, report.torch) == (RouteKind.SHELF, "2.7.1+cu118")
    assert verb.undo(Path(env.root)).state == "undone"
    with pytest.raises(NotFound, match="nothing was installed by Rekindle"):
        verb.undo(Path(env.root))


def test_two_writers_are_refused(env: Environment, house: Path) -> None:
    env.folder.mkdir(exist_ok=True)
    try:
        with FileLock(env.folder / "lock"), pytest.raises(Locked):
            apply.install(env, route("2.7.1", "cu118"), Pip(env), K80)
    finally:
        (env.folder / "lock").unlink(missing_ok=True)
        env.folder.rmdir()


def test_another_python_is_asked_for_not_forced(env: Environment) -> None:
    with pytest.raises(MissingTool, match=r"needs Python 3\.6"):
        apply.check(Route(route=RouteKind.OFFICIAL_WHEEL, torch="1.10.2", python="3.6"), env)


def test_a_route_that_must_be_built_says_how(env: Environment) -> None:
    build = Route(route=RouteKind.SOURCE_BUILD, torch="2.7.1", python=PYTHON, commands=("rekindle build plan.toml",))
    with pytest.raises(MissingTool) as missing:
        apply.check(build, env)
    assert "rekindle build plan.toml" in (missing.value.hint or "")


def test_where_there_is_no_environment(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no Python environment"):
        locate_environment(tmp_path / "nothing")
    with pytest.raises(UsageError, match="system's Python"):
        locate_environment(Path(sys.base_prefix) / ("python.exe" if os.name == "nt" else "bin/python3"))


def test_a_record_that_points_outside_is_not_followed(env: Environment, tmp_path: Path) -> None:
    outside = tmp_path / "precious.txt"
    outside.write_text("keep me", encoding="utf-8")
    info = env.site / "evil-1.0.dist-info"
    info.mkdir()
    (info / "RECORD").write_text(f"{outside},,\n../../../../../../../../{outside},,\n", encoding="utf-8")
    found = record.installed(env.site)["evil"]
    record.remove(found, env.site, Path(env.root))
    assert outside.read_text(encoding="utf-8") == "keep me"
    assert not info.exists()


def torch(folder: Path, version: str, code: bytes) -> Path:
    plain, _, local = version.partition("+")
    files = {
        "torch/__init__.py": f"__version__ = {version!r}\n".encode(),
        "torch/version.py": f"__version__ = '{version}'\ncuda = '11.8'\n".encode(),
        "torch/lib/libtorch_cuda.fatbin": code,
    }
    return _wheel(folder, "torch", f"{plain}+{local}" if local else plain, files, "")


def vision(folder: Path, version: str, needs: str) -> Path:
    return _wheel(folder, "torchvision", version, {"torchvision/__init__.py": b""}, f"Requires-Dist: torch=={needs}\n")


def _wheel(folder: Path, name: str, version: str, files: Mapping[str, bytes], extra: str) -> Path:
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{extra}"
    about = f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\nTag: {TAG}-{TAG}-{PLATFORM}\n"
    whole = {**files, f"{info}/METADATA": metadata.encode(), f"{info}/WHEEL": about.encode()}
    return small_wheels.make(folder, whole, name=f"{name}-{version}-{TAG}-{TAG}-{PLATFORM}.whl")


def route(
    version: str,
    variant: str | None,
    *,
    torchvision: str | None = None,
    index: str | None = None,
    numpy: str | None = None,
) -> Route:
    """An official route; without an index it is taken from the one that is configured, under its full name."""
    return Route(
        route=RouteKind.OFFICIAL_WHEEL,
        torch=version if index or variant is None else f"{version}+{variant}",
        variant=variant if index else None,
        python=PYTHON,
        index_url=index,
        torchvision=torchvision,
        numpy=numpy,
        on_configured_index=index is None,
    )


def pip(env: Environment, *words: str, code: int = 0) -> None:
    command = [env.program, "-m", "pip", "--disable-pip-version-check", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr


def versions(env: Environment) -> dict[str, str]:
    return {name: each.version for name, each in record.installed(env.site).items()}


def _everything(folder: Path) -> dict[str, bytes]:
    """Every file of the environment with its bytes; compiled copies come and go by themselves."""
    files = [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files if path.name != "lock"}


def test_the_real_pytorch_for_a_card_arrives_stays_and_goes(tmp_path: Path) -> None:
    """A real wheel of the index for a card it serves: 3 GB to download, 6 GB on disk, so only when asked for.

    On x86_64 the card is a V100, which the newest wheel of the index no longer serves; no aarch64 wheel has its code,
    so there it is an H200.
    """
    if not os.environ.get("REKINDLE_HEAVY"):
        unverified("a real PyTorch is 3 GB: set REKINDLE_HEAVY=1 to install one")
    card, capability = ("Tesla V100-PCIE-16GB", "7.0") if platform.machine() in ("x86_64", "AMD64") else ("H200", "9.0")
    folder = tmp_path / "env"
    venv.create(folder, with_pip=True)
    environment = locate_environment(folder)
    before = record.freeze(record.installed(environment.site))
    report = verb.install(folder, verb.InstallRequest(wish=Wish(configured_index=True), gpus=(card,)))
    assert report.coverage == {capability: "SERVES"}
    pip(environment, "install", "-U", "torchvision")
    assert versions(environment)["torch"] == report.torch
    command = [environment.program, "-c", "import torch; print(torch.ones(2).sum().item())"]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.stdout.strip() == "2.0", said.stderr
    verb.undo(folder)
    assert record.freeze(record.installed(environment.site)) == before


def _codec(folder: Path, code: bytes, needs: str = "torch") -> None:
    files = {"torchcodec/__init__.py": b"", "torchcodec/core.fatbin": code}
    _wheel(folder, "torchcodec", "0.5", files, f"Requires-Dist: {needs}\nRequires-Dist: helper\n")
    _wheel(folder, "helper", "1.0", {"helper.py": b""}, "")


WITH_CODEC = Wish(extensions=("torchcodec",))


def test_an_extension_goes_in_with_its_torch_and_out_again(env: Environment, house: Path) -> None:
    """The release for this torch, with what it needs itself; the torch that was asked for stays."""
    _codec(house, KEPLER)
    before = record.freeze(record.installed(env.site))
    wheel = next(house.glob("torch-2.7.1*"))
    wanted = verb.InstallRequest(gpus=("Tesla K80",), wheel=wheel, wish=WITH_CODEC, dry_run=True)
    dry = verb.install(Path(env.root), wanted)
    assert dry.state == "would-install" and "torchcodec==0.5 " in dry.commands[-1]
    assert record.freeze(record.installed(env.site)) == before
    report = verb.install(Path(env.root), msgspec.structs.replace(wanted, dry_run=False))
    assert versions(env) | {"torch": "2.7.1+cu118", "torchcodec": "0.5", "helper": "1.0"} == versions(env)
    assert [each.what for each in report.beside] == [f"torchcodec-0.5-{TAG}-{TAG}-{PLATFORM}.whl"]
    assert report.exit_code == 9  # this torch has no libraries to hold its symbols against
    verb.undo(Path(env.root))
    assert record.freeze(record.installed(env.site)) == before


@pytest.mark.parametrize(
    ("code", "needs", "said"),
    [(PASCAL, "torch", "does not serve sm_37"), (KEPLER, "torch==2.8.0", "requires `torch==2.8.0`")],
)
def test_torch_does_not_go_in_without_the_extension(
    env: Environment, house: Path, code: bytes, needs: str, said: str
) -> None:
    _codec(house, code, needs)
    before = _everything(Path(env.root))
    wheel = next(house.glob("torch-2.7.1*"))
    with pytest.raises(NoRoute, match=f"(?s)no ready-made wheel of torchcodec fits torch 2.7.1.*{said}"):
        verb.install(Path(env.root), verb.InstallRequest(gpus=("Tesla K80",), wheel=wheel, wish=WITH_CODEC))
    assert _everything(Path(env.root)) == before


def test_an_extension_alone_goes_beside_the_torch_that_is_there(env: Environment, house: Path) -> None:
    _codec(house, KEPLER)
    verb.install(Path(env.root), verb.InstallRequest(gpus=("Tesla K80",), wheel=next(house.glob("torch-2.7.1*"))))
    there = Route(route=RouteKind.INSTALLED, torch="2.7.1", variant="cu118", cuda=Version("11.8"))
    place = situation_from_options(["Tesla K80"], system=env.os, machine=paths.architecture())
    found = fitting(("torchcodec",), there, env, place)
    report = apply.install(env, there, Pip(env), K80, beside=found)
    assert [each.name for each in report.changes] == ["helper", "torchcodec"]


def test_an_environment_without_pip_is_served_by_uv(
    house: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS", "PIP_CONFIG_FILE"):
        monkeypatch.delenv(name)
    command = [sys.executable, "-m", "pip", "install", "-q", "--target", str(tmp_path / "uv"), "uv"]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        unverified("uv could not be downloaded from the index")
    folder = tmp_path / "env"
    venv.create(folder, with_pip=False)
    monkeypatch.setenv("PATH", f"{tmp_path / 'uv' / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(house))
    wanted = verb.InstallRequest(gpus=("Tesla K80",), wheel=next(house.glob("torch-2.7.1*")))
    report = verb.install(folder, wanted)
    assert (report.torch, report.coverage) == ("2.7.1+cu118", {"3.7": "SERVES"})
    assert [each.after for each in verb.undo(folder).changes] == [None]
    assert "torch" not in versions(locate_environment(folder))


def test_files_that_a_stopped_installer_left_without_a_name_are_removed(
    env: Environment, house: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uv links many wheels at once: stopped half-way, files lie there whose dist-info never came."""

    def half(self: Pip, request: Request, folder: Path) -> None:
        (env.site / "torch" / "lib").mkdir(parents=True)
        (env.site / "torch" / "lib" / "half.so").write_bytes(b"x")
        (env.site / "pip" / "left.py").write_text("", encoding="utf-8")
        raise KeyboardInterrupt

    monkeypatch.setattr(Pip, "install", half)
    before = _everything(Path(env.root))
    with pytest.raises(KeyboardInterrupt):
        apply.install(env, route("2.7.1", "cu118"), Pip(env), K80)
    assert _everything(Path(env.root)) == before
