"""pip and uv install by name from a shelf: from the folder, from `shelf serve`, and from a plain static server (nginx).

Everything is on this machine. The measured case: one extension for sm_35 (CUDA 11.8) and sm_75 (11.8 and 13.0), two
torches, two CPU levels, on one shelf; each client must get the right file by the printed line, each time.
"""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rekindle.model.card import Capability
from rekindle.wheels.shelf import serve, shelf
from rekindle.wheels.shelf.store import install_command
from support import small_wheels
from support.artefacts import unverified
from support.cuda import machine
from support.fatbins import container

TAG = f"cp{sys.version_info[0]}{sys.version_info[1]}"
PLATFORM = "win_amd64" if os.name == "nt" else f"linux_{os.uname().machine}"
# What each build is for: card, CUDA, torch, CPU level.
BUILDS = [
    ("sm_35", "11.8", "2.0.1", ""),
    ("sm_75", "11.8", "2.0.1", ""),
    ("sm_75", "13.0", "2.9.1", ""),
    ("sm_75", "13.0", "2.9.1", "x86v3"),
]


def _extension(folder: Path, card: str, cuda: str, torch: str, level: str) -> Path:
    """The same release each time; only what is inside differs."""
    local = f"cu{cuda.replace('.', '')}" + (f".{level}" if level else "")
    info = f"ext-1.0+{local}.dist-info"
    files = {
        "ext/__init__.py": f"built_for = {(card, cuda, torch, level)!r}\n".encode(),
        "ext/kernels.fatbin": _code(folder, card, cuda),
        f"{info}/METADATA": (
            f"Metadata-Version: 2.1\nName: ext\nVersion: 1.0+{local}\nRequires-Dist: torch=={torch}\n"
        ).encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {TAG}-{TAG}-{PLATFORM}\n".encode(),
    }
    return small_wheels.make(folder, files, name=f"ext-1.0+{local}-{TAG}-{TAG}-{PLATFORM}.whl")


def _code(folder: Path, card: str, cuda: str) -> bytes:
    """What the nvcc of that CUDA makes for the card, where one here works; else a container with its header."""
    kit = next((each for each in machine().toolkits if each.nvcc and str(each.version).startswith(f"{cuda}.")), None)
    if kit is None or card not in map(str, kit.targets):
        return container(card)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "k.cu").write_text("__global__ void k(int *x) { *x += 1; }\n", encoding="utf-8")
    programs = f"{kit.root}/bin{os.pathsep}{os.environ['PATH']}"
    gcc = ["-ccbin", "g++-11"] if shutil.which("g++-11") else []
    words = [str(kit.nvcc), "-fatbin", f"-arch={card}", *gcc, "-o", "k.fatbin", "k.cu"]
    done = subprocess.run(words, cwd=folder, env={**os.environ, "PATH": programs}, check=False, timeout=300)
    return (folder / "k.fatbin").read_bytes() if done.returncode == 0 else container(card)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("my shelf")
    for number, build in enumerate(BUILDS):
        shelf.add(work / "shelf", [_extension(work / str(number), *build)])
    assert len(shelf.entries(work / "shelf")) == len(BUILDS)
    return work / "shelf"


@pytest.fixture(scope="module", params=["folder", "shelf serve", "nginx"])
def index(request: pytest.FixtureRequest, root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "folder":
        yield (root / "simple").as_uri()
    elif request.param == "shelf serve":
        with serve.server(root, "127.0.0.1", 0) as address:
            yield f"{address}/simple/"
    else:
        yield from _nginx(root, tmp_path_factory.mktemp("nginx"))


def _nginx(root: Path, work: Path) -> Iterator[str]:
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        unverified("nginx is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (work / "nginx.conf").write_text(
        f"daemon off; pid {work}/pid; error_log {work}/error.log; worker_processes 1;\n"
        + ("user root;\n" if hasattr(os, "geteuid") and os.geteuid() == 0 else "")
        + "events {}\n"
        + f"http {{ access_log off; client_body_temp_path {work}/b; proxy_temp_path {work}/p;"
        + f" fastcgi_temp_path {work}/f; uwsgi_temp_path {work}/u; scgi_temp_path {work}/s;"
        + " types { text/html html; application/json json; } default_type application/octet-stream;"
        + f' server {{ listen 127.0.0.1:{port}; root "{root}"; index index.html; }} }}\n',
        encoding="utf-8",
    )
    server = subprocess.Popen([str(program), "-c", str(work / "nginx.conf")], stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/simple/"
    finally:
        server.terminate()
        server.wait(10)


def _words(client: str, index: str, requirement: str, target: Path) -> list[str]:
    if client == "pip":
        words = [sys.executable, "-m", "pip", "install", "-q", "--isolated", "--disable-pip-version-check"]
        return [*words, "--no-cache-dir", "--no-deps", "--index-url", index, "--target", str(target), requirement]
    program = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if program is None:
        unverified("uv is not installed")
    words = [str(program), "pip", "install", "-q", "--no-cache", "--no-config", "--no-deps", "--python", sys.executable]
    return [*words, "--default-index", index, "--target", str(target), requirement]


@pytest.mark.parametrize("client", ["pip", "uv"])
@pytest.mark.parametrize("build", BUILDS, ids=lambda build: "-".join(filter(None, build)))
def test_the_printed_line_gets_exactly_the_right_file(
    index: str, root: Path, client: str, build: tuple[str, str, str, str], tmp_path: Path
) -> None:
    card, _, torch, level = build
    every = shelf.find(root, [Capability.parse(card)], project="ext")
    found = [entry for entry in every if (entry.torch or "").partition("+")[0] == torch]
    chosen = [entry for entry in found if (level or "x86v3") in entry.version] if level else found
    entry = next(each for each in chosen if level or "x86v3" not in each.version)
    line = install_command(root, entry)
    requirement = shlex.split(line)[-1]
    assert requirement == f"ext=={entry.version}"
    done = subprocess.run(
        _words(client, index, requirement, tmp_path / "site"), capture_output=True, text=True, check=False, timeout=180
    )
    assert done.returncode == 0, done.stderr
    assert f"built_for = {build!r}" in (tmp_path / "site/ext/__init__.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("client", ["pip", "uv"])
def test_a_file_with_another_hash_than_the_index_says_is_refused(
    index: str, root: Path, client: str, tmp_path: Path
) -> None:
    entry = shelf.entries(root)[0]
    wheel = root / "wheels" / entry.file
    good = wheel.read_bytes()
    wheel.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    try:
        words = _words(client, index, f"ext=={entry.version}", tmp_path / "site")
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=180)
    finally:
        wheel.write_bytes(good)
    assert done.returncode != 0
    assert not (tmp_path / "site/ext").exists()
