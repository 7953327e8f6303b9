"""`rekindle serve` while many people type: errors, answers a second, and whether its memory stays flat.

    python benchmarks/serve.py [--clients 100] [--seconds 300] [--seed 1]

Each client types cards letter by letter, as the picker of the page asks. Its exit code is 1 after an error, a death of
the server, or more than 50 MB of growth from the second third of the time to the last.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import os
import random
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import psutil

ROOT = Path(__file__).resolve().parents[1]
MACHINE = ROOT / "tests" / "machines"
CARDS = ("GTX 1080 Ti", "rtx 3090", "Tesla K40c", "sm_61", "K80, P100", "Quadro M4000", "gtx1060 6gb", "RX 580", "<b>x")
PAGES = ("/", "/index.html", "/doctor.html", "/here.js", "/cards.html", "/nothing", "/gpu/nothing.html")
GROWTH = 50e6


@contextlib.contextmanager
def served() -> Iterator[tuple[str, psutil.Process]]:
    """A server of its own on a free port: its address, and the process that answers."""
    words = [sys.executable, "-X", "faulthandler", "-m", "rekindle", "serve", "--port", "0"]
    words += ["--machine", str(sorted(MACHINE.glob("*.json"))[0])]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as server:
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        try:
            urllib.request.urlopen(address, timeout=120).close()
            children = psutil.Process(server.pid).children()
            yield address, next(each for each in children if "spawn_main" in " ".join(each.cmdline()))
        finally:
            server.kill()


def typed(dice: random.Random) -> Iterator[str]:
    """The requests of one person: a card letter by letter, now and then a page."""
    while True:
        card = dice.choice(CARDS)
        asked = {"os": dice.choice(("linux", "windows", "")), "driver": dice.choice(("", "535", "x"))}
        for end in range(1, len(card) + 1):
            yield "/answer?" + urlencode({"gpu": card[:end], **asked})
        yield dice.choice(PAGES)


def client(address: str, seed: str, goes_on: Callable[[], bool], errors: list[str]) -> int:
    """Ask while `goes_on`; how many answers came."""
    place = urlsplit(address)
    count = 0
    for path in typed(random.Random(seed)):
        if not goes_on():
            return count
        try:
            connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=120)
            connection.request("GET", path)
            status = connection.getresponse().status
            connection.close()
        except OSError as error:
            errors.append(f"{path}: {error}")
            continue
        if status != (404 if "nothing" in path else 200):
            errors.append(f"{path}: {status}")
        count += 1
    return count


def load(address: str, clients: int, goes_on: Callable[[int], Callable[[], bool]], seed: int) -> tuple[int, list[str]]:
    """All clients at once: how many answers, and what went wrong. `goes_on` gives each client its own end."""
    errors: list[str] = []
    counts: list[int] = []

    def one(number: int) -> None:
        counts.append(client(address, f"{seed} {number}", goes_on(number), errors))

    threads = [threading.Thread(target=one, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts), errors


def main() -> int:
    parser = argparse.ArgumentParser(prog="python benchmarks/serve.py")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=1)
    words = parser.parse_args()
    memory: list[int] = []
    with served() as (address, server):
        until = time.monotonic() + words.seconds
        over = threading.Event()

        def watch() -> None:
            while not over.wait(1.0):
                with contextlib.suppress(psutil.Error):
                    memory.append(server.memory_info().rss)

        watching = threading.Thread(target=watch)
        watching.start()
        answers, errors = load(address, words.clients, lambda _: lambda: time.monotonic() < until, words.seed)
        over.set()
        watching.join()
        alive = server.is_running() and server.status() != psutil.STATUS_ZOMBIE
    third = len(memory) // 3
    first, last = statistics.median(memory[third : 2 * third]), statistics.median(memory[2 * third :])
    print(f"{words.clients} clients, {words.seconds:.0f} s: {answers} answers ({answers / words.seconds:.0f} a second)")
    print(f"memory {first / 1e6:.0f} MB, then {last / 1e6:.0f} MB; errors: {len(errors)}", *errors[:3], sep="\n  ")
    return int(bool(errors) or not alive or last - first > GROWTH)


if __name__ == "__main__":
    sys.exit(main())
