"""A package index on this machine and a copy of the tables: where a maintainer's commands are rehearsed."""

from __future__ import annotations

import functools
import http.server
import io
import json
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
KNOWLEDGE = ROOT / "src" / "rekindle" / "knowledge"
METADATA = "Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{more}"


@pytest.fixture
def index(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A package index on this machine: a folder of pages and wheels, and its address."""
    folder = tmp_path / "index"
    folder.mkdir()
    handler = functools.partial(_Quiet, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield folder, f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    """Answers ranges, as package indexes do."""

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        path = Path(self.translate_path(self.path))
        if wanted is None or not path.is_file():
            super().do_GET()
            return
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        data = path.read_bytes()
        begin = int(first) if first else max(len(data) - int(last), 0)
        part = data[begin : int(last) + 1 if first and last else None]
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {begin}-{begin + len(part) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part)


def publish(folder: Path, package: str, wheels: Mapping[str, Mapping[str, bytes | str]]) -> None:
    page = folder / package
    page.mkdir(exist_ok=True)
    for name, files in wheels.items():
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as archive:
            for path, text in files.items():
                archive.writestr(path, text)
        (page / name).write_bytes(stream.getvalue())
    links = "".join(f'<a href="{name}">{name}</a>\n' for name in sorted(path.name for path in page.glob("*.whl")))
    (page / "index.html").write_text(f"<html><body>{links}</body></html>", encoding="utf-8")


def observe(tables_folder: Path, *words: str, url: str = "") -> subprocess.CompletedProcess[str]:
    """A maintainer's command, in a copy of the tables."""
    environment = {**os.environ, "REKINDLE_OBSERVE_TABLES": str(tables_folder), "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "tools.observe", *words, *(["--index", url] if url else [])]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=400)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    folder = tmp_path / "knowledge"
    shutil.copytree(KNOWLEDGE, folder, ignore=shutil.ignore_patterns("*.py", "__pycache__", "logs", "builds"))
    (folder / "builds").mkdir()
    for name in ("compile_memory.json", "compile_times.json", "sweeps.json"):
        shutil.copy(KNOWLEDGE / "builds" / name, folder / "builds" / name)
    return folder


def toolkit(version: str, pin: str) -> dict[str, dict[str, str]]:
    wanted = f"nvidia-cublas-cu12=={pin}; (sys_platform == 'linux') and extra == 'cublas'"
    more = f"Provides-Extra: cublas\nRequires-Dist: {wanted}\n"
    text = METADATA.format(name="cuda-toolkit", version=version, more=more)
    return {f"cuda_toolkit-{version}-py2.py3-none-any.whl": {f"cuda_toolkit-{version}.dist-info/METADATA": text}}


def rows(place: Path) -> list[dict[str, Any]]:
    """The rows of a table's first list."""
    found: dict[str, list[dict[str, Any]]] = json.loads(place.read_text(encoding="utf-8"))
    return next(iter(found.values()))
