"""`serve`, `shelf serve` and a fleet for an hour, while clients break off and parts of the fleet are killed.

    python -m benchmarks.soak [--seconds 3600] [--seed 1]

Its exit code is 1 after an error, a lost or doubled wheel, or more than 50 MB of growth of a server from the second
third of the time to the last.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from benchmarks.serve import GROWTH, load, served  # noqa: E402

from rekindle.wheels.shelf import shelf as shelf_room  # noqa: E402
from support.fleets import Fleet, KilledRound, events, free_port, reaches, until  # noqa: E402
from support.shelves import pure_wheel  # noqa: E402

CLIENTS, JOBS = 8, 4


@contextlib.contextmanager
def shelf_served(folder: Path) -> Iterator[tuple[str, psutil.Process]]:
    port = free_port()
    words = [sys.executable, "-X", "faulthandler", "-m", "rekindle", "shelf", "serve", "--shelf", str(folder)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(
        [*words, "--port", str(port)], env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:
        try:
            until(lambda: reaches("127.0.0.1", port), 60, "the shelf was not served")
            yield f"http://127.0.0.1:{port}", psutil.Process(server.pid)
        finally:
            server.kill()


class Soak:
    """The clients of the shelf and the fleet's rounds; `errors` is what went wrong."""

    def __init__(self, folder: Path, seconds: float, seed: int) -> None:
        self.folder, self.seed = folder, seed
        self.end = time.monotonic() + seconds
        self.errors: list[str] = []
        self.memory: dict[str, list[int]] = {}
        self.fetched = self.broken = self.answers = self.rounds = 0
        self.killed: Counter[str] = Counter()

    def goes_on(self) -> bool:
        return time.monotonic() < self.end

    def typists(self, address: str) -> None:
        self.answers, errors = load(address, CLIENTS, lambda _: self.goes_on, self.seed)
        self.errors += errors

    def fetchers(self, address: str) -> None:
        """Wheels whole and broken off, pages, and requests that are none."""
        lot, place = random.Random(self.seed), urlsplit(address)
        wheels = self.folder / "shelf" / "wheels"
        while self.goes_on():
            names = [path.name for path in wheels.glob("*.whl")]
            path = f"/wheels/{lot.choice(names)}" if names and lot.random() < 0.7 else "/"
            try:
                if lot.random() < 0.2:
                    with socket.create_connection((place.hostname or "", place.port or 0), timeout=30) as broken:
                        broken.sendall(lot.choice((b"GET / HT", b"\x16\x03\x01", f"GET {path} HTTP/1.1\r\n".encode())))
                    self.broken += 1
                    continue
                asked = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
                asked.request("GET", path)
                answer = asked.getresponse()
                data = answer.read()
                if answer.status != 200 or (names and path != "/" and len(data) != (wheels / path[8:]).stat().st_size):
                    self.errors.append(f"{path}: {answer.status}, {len(data)} bytes")
                self.fetched += 1
                asked.close()
            except (OSError, http.client.HTTPException) as error:
                self.errors.append(f"{path}: {error!r}")
            time.sleep(0.02)

    def fleet(self, fleet: Fleet) -> None:
        lot = random.Random(self.seed)
        while self.goes_on():
            self.rounds += 1
            this = KilledRound(fleet, self.rounds, JOBS)
            # Some rounds end before the next part is killed, some after several.
            while this.client.poll() is None and self.goes_on():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    this.client.wait(lot.uniform(1, 40))
                who = lot.choice(("client", "scheduler", "one", "two"))
                self.killed[who] += this.client.poll() is None and this.kill(who)
            if code := this.client.wait(900):
                self.errors.append(f"round {self.rounds} ended with {code}")
                told = [each for each in events(this.matrix) if each.event in ("failed", "unplaced", "aside", "died")]
                self.errors += [f"{each.event} {each.name} on {each.worker}: {each.error}" for each in told[-4:]]
                return
            this.judge()

    def watch(self, servers: dict[str, psutil.Process]) -> None:
        while self.goes_on():
            for name, server in servers.items():
                with contextlib.suppress(psutil.Error):
                    self.memory.setdefault(name, []).append(server.memory_info().rss)
            time.sleep(1)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak")
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--seed", type=int, default=1)
    words = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, contextlib.ExitStack() as ending:
        place = Path(folder)
        fleet = Fleet(place)
        ending.callback(fleet.close)
        fleet.scheduler()
        for name in ("one", "two"):
            fleet.worker(name, "--slots", "1", "--memory", "2")
        shelf_room.add(place / "shelf", [pure_wheel(place / "made")])
        page, pages = ending.enter_context(served())
        address, shelf = ending.enter_context(shelf_served(place / "shelf"))
        servers = {"serve": pages, "shelf serve": shelf}
        soak = Soak(place, words.seconds, words.seed)
        threads = [
            threading.Thread(target=soak.typists, args=(page,)),
            threading.Thread(target=soak.fetchers, args=(address,)),
            threading.Thread(target=soak.watch, args=(servers,)),
        ]
        for thread in threads:
            thread.start()
        try:
            soak.fleet(fleet)
        except AssertionError as error:
            soak.errors.append(f"round {soak.rounds}: {error}")
        for thread in threads:
            thread.join()
        soak.errors += [f"`{name}` died" for name, server in servers.items() if not server.is_running()]
        wheels = len(list((place / "shelf" / "wheels").glob("*.whl"))) - 1
        if wheels != soak.rounds * JOBS:
            soak.errors.append(f"{wheels} wheels on the shelf after {soak.rounds * JOBS} jobs")
    print(f"{words.seconds:.0f} s; serve: {soak.answers} answers to {CLIENTS} people who type")
    print(f"shelf serve: {soak.fetched} answers, {soak.broken} requests broken off")
    print(f"fleet: {soak.rounds * JOBS} jobs in {soak.rounds} matrices, {wheels} wheels; killed: {dict(soak.killed)}")
    for name, sizes in soak.memory.items():
        third = len(sizes) // 3
        first, last = statistics.median(sizes[third : 2 * third]), statistics.median(sizes[2 * third :])
        print(f"{name}: memory {first / 1e6:.0f} MB, then {last / 1e6:.0f} MB")
        soak.errors += [f"{name} grew"] if last - first > GROWTH else []
    print(f"errors: {len(soak.errors)}", *soak.errors[:5], sep="\n  ")
    return int(bool(soak.errors))


if __name__ == "__main__":
    sys.exit(main())
