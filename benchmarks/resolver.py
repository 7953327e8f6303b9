"""Every distinct question against one cold `rekindle plan`.

    python benchmarks/resolver.py

All distinct pairs of capability and last driver branch among the cards of the tables, on two systems, with seven
Pythons, are resolved in one process. The goal: less than 100 times the median of a single cold `rekindle plan`.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import time

from rekindle.knowledge.gpu.gpus import gpus
from rekindle.stack.resolver import resolve
from rekindle.stack.rules import RouteKind
from rekindle.stack.situation import Card, Situation, Wish

PYTHONS = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
ROUNDS = 7
PINS = ("torch==2.15.0", "torchvision==0.29.2")
GOAL = 100.0


def main() -> int:
    cold = _cold()
    kinds = sorted({(gpu.capability, gpu.last_driver_branch or "") for gpu in gpus()})
    begun = time.perf_counter()
    answers: dict[RouteKind, int] = {}
    for capability, branch in kinds:
        card = Card(name=capability.sm, capabilities=(capability,), last_driver_branch=branch or None)
        for system in ("windows", "linux"):
            for python in PYTHONS:
                verdict = resolve(Situation(system=system, cards=(card,), python=python), Wish())
                route = verdict.recommended.route
                answers[route] = answers.get(route, 0) + 1
    spent = time.perf_counter() - begun
    count = sum(answers.values())
    print(f"one cold `rekindle plan` (median of {ROUNDS}): {cold:.3f} s")
    print(f"{len(kinds)} kinds of card x 2 systems x {len(PYTHONS)} Pythons = {count} questions: {spent:.1f} s")
    each, times = 1000 * spent / count, spent / cold
    print(f"one question: {each:.0f} ms; all of them: {times:.0f} x a cold plan (goal < {GOAL:.0f})")
    beside = _uv()
    if beside is None:
        print("UNVERIFIED: uv is not here, or cannot reach the package index")
    else:
        print(f"uv pip compile of {' '.join(PINS)}, everything in its cache (median of {ROUNDS}): {beside:.3f} s")
    print("answers: " + ", ".join(f"{route.value} {number}" for route, number in sorted(answers.items())))
    return 0 if times < GOAL else 1


def _uv() -> float | None:
    """uv's resolver for the pins of one answer: it asks an index what there is, `plan` says what runs on the card."""
    uv = shutil.which("uv")
    if uv is None:
        return None
    times = []
    for _ in range(ROUNDS + 1):
        begun = time.perf_counter()
        done = subprocess.run(
            [uv, "pip", "compile", "-q", "-"], input="\n".join(PINS), text=True, capture_output=True, check=False
        )
        times.append(time.perf_counter() - begun)
        if done.returncode:
            return None
    # The first one fills the cache.
    return statistics.median(times[1:])


def _cold() -> float:
    command = [sys.executable, "-m", "rekindle", "plan", "--gpu", "Tesla K40c", "--os", "windows", "--json"]
    times = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        subprocess.run(command, capture_output=True, check=True)
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


if __name__ == "__main__":
    sys.exit(main())
