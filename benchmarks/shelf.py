"""How `shelf serve` holds up: many clients at once, slow and half-open ones among them, and pip installing meanwhile.

Loopback only, and bounded: `python benchmarks/shelf.py [--clients 200] [--half-open 300] [--seconds 10]`.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from rekindle.wheels.shelf import shelf
from support.shelves import pure_wheel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--half-open", type=int, default=300)
    parser.add_argument("--slow", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=10.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rekindle-bench-") as folder:
        os.environ["REKINDLE_KEY"] = str(Path(folder) / "key.pem")
        root = Path(folder) / "shelf"
        # 4 MB of what does not compress: a slow client cannot swallow it into its buffers.
        body = "data = " + repr(os.urandom(4 << 20).hex()[: 4 << 20])
        (entry,) = shelf.add(root, [pure_wheel(Path(folder) / "in", body=body)])
        command = [sys.executable, "-m", "rekindle", "shelf", "serve", "--port", "0", "--shelf", str(root)]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert server.stdout is not None
            address = server.stdout.readline().strip().removesuffix("/simple/")
            print(json.dumps(measure(address, entry.file, asked, Path(folder), psutil.Process(server.pid)), indent=2))
        finally:
            server.terminate()
            server.wait(10)


def measure(
    address: str, file: str, asked: argparse.Namespace, folder: Path, server: psutil.Process
) -> dict[str, object]:
    host, port = address.removeprefix("http://").split(":")
    quiet = _requests(address, 1, 2.0)
    half = [socket.create_connection((host, int(port))) for _ in range(asked.half_open)]
    for client in half[: len(half) // 2]:
        client.sendall(b"GET /simple/ HTTP/1.1\r\nHost: x\r\nX-Slow: ")
    slow = [socket.create_connection((host, int(port))) for _ in range(asked.slow)]
    for client in slow:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.sendall(f"GET /wheels/{file} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    threads, memory = server.num_threads(), server.memory_info().rss
    installed: dict[str, object] = {}
    pip = threading.Thread(target=_pip, args=(address, folder, installed))
    pip.start()
    busy = _requests(address, asked.clients, asked.seconds)
    pip.join()
    begun = time.monotonic()
    for client in half:
        client.settimeout(60)
        try:
            while client.recv(4096):
                pass
        except OSError:
            pass
        client.close()
    waited = time.monotonic() - begun
    for client in slow:
        client.close()
    return {
        "one client": quiet,
        f"{asked.clients} clients": busy,
        "half-open clients": asked.half_open,
        "slow clients": asked.slow,
        "server threads then": threads,
        "server memory then, MB": round(memory / 1e6),
        "pip meanwhile": installed,
        "half-open ones let go after at most, s": round(waited + asked.seconds, 1),
    }


def _requests(address: str, clients: int, seconds: float) -> dict[str, object]:
    """Index pages over and over by so many clients: how many, how long each took, how many failed."""
    took: list[float] = []
    failed: list[str] = []
    end = time.monotonic() + seconds

    def client() -> None:
        while time.monotonic() < end:
            begun = time.monotonic()
            try:
                with urllib.request.urlopen(f"{address}/simple/demo/", timeout=30) as answer:
                    answer.read()
                took.append(time.monotonic() - begun)
            except OSError as error:
                failed.append(str(error))

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ordered = sorted(took)
    return {
        "requests": len(took),
        "failed": len(failed),
        "per second": round(len(took) / seconds, 1),
        "median ms": round(statistics.median(ordered) * 1e3, 1) if ordered else None,
        "99 % within ms": round(ordered[int(len(ordered) * 0.99)] * 1e3, 1) if ordered else None,
    }


def _pip(address: str, folder: Path, installed: dict[str, object]) -> None:
    begun = time.monotonic()
    words = ["-m", "pip", "install", "-q", "--isolated", "--disable-pip-version-check", "--no-cache-dir", "--no-deps"]
    command = [
        sys.executable,
        *words,
        "--index-url",
        f"{address}/simple/",
        "--target",
        str(folder / "site"),
        "demo==1.0",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    installed["ok"] = done.returncode == 0 and (folder / "site/demo_package").is_dir()
    installed["seconds"] = round(time.monotonic() - begun, 1)


if __name__ == "__main__":
    main()
