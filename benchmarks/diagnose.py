"""How often `rekindle diagnose` names the right cause, and how fast: `python benchmarks/diagnose.py [--quick]`.

Needs the failure corpus, a folder with `cases/*.json`: REKINDLE_CORPUS, or `../shared/corpus` beside the repository.
Without it those measurements are UNVERIFIED. The logs of work that went well are made by `tests/support/good_logs.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from rekindle.diagnose.diagnosis import diagnose_file, diagnose_text  # noqa: E402
from support.good_logs import good_logs  # noqa: E402

Labels = Callable[[str], list[str]]


class Case(NamedTuple):
    """`right` are the labels that count: the root cause, and those that are equally right."""

    id: str
    form: str
    right: tuple[str, ...]
    text: str

    @property
    def label(self) -> str:
        return self.right[0]


def corpus() -> list[Case] | None:
    """The cases, or None where the corpus is not at hand."""
    folder = Path(os.environ.get("REKINDLE_CORPUS") or ROOT.parent / "shared" / "corpus")
    if not (folder / "cases").is_dir():
        return None
    found = []
    for path in sorted((folder / "cases").glob("*.json")) + sorted((folder / "second").glob("*.json")):
        row = json.loads(path.read_text(encoding="utf-8"))
        form = row["excerpt_form"] if path.parent.name == "cases" else "second"
        found.append(Case(row["id"], form, (row["root_cause"], *row.get("also", ())), row["excerpt"]))
    return found


def labels(text: str) -> list[str]:
    found = diagnose_text(text)
    return [cause.label for cause in found.causes] or [found.outcome.value]


def last_error(text: str) -> list[str]:
    return _one_line(text, reverse=True)


def first_error(text: str) -> list[str]:
    return _one_line(text, reverse=False)


def _one_line(text: str, *, reverse: bool) -> list[str]:
    """What `grep -i error | tail -1` (or head -1) leads to: that line alone, through the same signatures."""
    lines = [line for line in text.splitlines() if re.search("error", line, re.IGNORECASE)]
    return labels(lines[-1 if reverse else 0]) if lines else ["none"]


class Host:
    """A real successful log of at least a thousand lines to bury an excerpt in."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self.texts = [path.read_text(encoding="utf-8", errors="replace").splitlines() for path in paths]
        long = [lines for lines in self.texts if len(lines) >= 1000]
        self.texts = long or [[line for lines in self.texts for line in lines]]

    def bury(self, excerpt: str, seed: int) -> str:
        """The excerpt at a random depth, its lines interleaved with those of the other work."""
        dice = random.Random(seed)
        lines = dice.choice(self.texts)
        at = dice.randrange(len(lines))
        out = lines[:at]
        for line in excerpt.splitlines():
            out.append(line)
            for _ in range(dice.choice((0, 0, 0, 1, 2))):
                if at < len(lines):
                    out.append(lines[at])
                    at += 1
        return "\n".join(out + lines[at:]) + "\n"


def score(
    cases: list[Case], guess: Callable[[Case], list[str]]
) -> tuple[dict[str, tuple[int, int, int]], Counter[str]]:
    """Per form: right first, among the first three, all; and what was taken for what."""
    table: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    confused: Counter[str] = Counter()
    for case in cases:
        found = guess(case)
        row = table[case.form]
        row[0] += found[0] in case.right
        row[1] += not set(case.right).isdisjoint(found[:3])
        row[2] += 1
        if found[0] not in case.right:
            confused[f"{case.label} -> {found[0]} (case {case.id})"] += 1
    return {form: (row[0], row[1], row[2]) for form, row in sorted(table.items())}, confused


def show(title: str, table: dict[str, tuple[int, int, int]]) -> None:
    for form, (first, three, total) in table.items():
        print(f"{title:<28} {form:<14} first {first:>3}/{total:<3} {100 * first / total:5.1f} %   "
              f"in three {three:>3} {100 * three / total:5.1f} %")  # fmt: skip


def measure_corpus(host: Host | None, repeats: int) -> None:
    cases = corpus()
    if cases is None:
        print("UNVERIFIED: there is no corpus (set REKINDLE_CORPUS to the folder with cases/)")
        return
    plain, confused = score(cases, lambda case: labels(case.text))
    show("rekindle diagnose", plain)
    for line, _ in confused.most_common():
        print(f"    {line}")
    if host:
        buried: Counter[tuple[str, int]] = Counter()
        lost: Counter[str] = Counter()
        for turn in range(repeats):
            table, wrong = score(cases, lambda case, t=turn: labels(host.bury(case.text, 1000 * t + hash_of(case.id))))
            for form, row in table.items():
                for index, value in enumerate(row):
                    buried[form, index] += value
            lost += wrong
        forms = {form for form, _ in buried}
        show(f"buried, {repeats} depths each", {f: (buried[f, 0], buried[f, 1], buried[f, 2]) for f in sorted(forms)})
        for line, count in lost.most_common():
            if line not in confused:
                print(f"    {line}: {count} of {repeats}")
    show("baseline: last error line", score(cases, lambda case: last_error(case.text))[0])
    show("baseline: first error line", score(cases, lambda case: first_error(case.text))[0])


def hash_of(text: str) -> int:
    return sum(ord(letter) * 31**index for index, letter in enumerate(text)) % 997


def measure_negatives(paths: list[Path]) -> None:
    invented = []
    for path in paths:
        found = diagnose_file(path)
        if found.causes:
            invented.append(f"{path.name}: {found.causes[0].label} at line {found.causes[0].line}")
        elif found.outcome.value != "none":
            invented.append(f"{path.name}: said to have failed")
    print(f"successful logs: {len(paths)}, with an invented cause: {len(invented)}", *invented, sep="\n    ")


def measure_speed(megabytes: int) -> None:
    """One failure in a large log, against `grep -cE` with twenty alternatives. The best of three each."""
    words = (
        "error|fatal|failed|Traceback|undefined reference|cannot find|No such file|not found|LNK[0-9]{4}|C[0-9]{4}:"
        "|WinError|unsupported|mismatch|Killed|out of memory|internal compiler|No module|denied|timed out|#error"
    )
    line = "[{n}/99999] /usr/bin/c++ -DNDEBUG -Iinclude -O3 -Wall -Wno-error=x -o t.dir/src/file_{n}.cpp.o -c f.cpp\n"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "big.log"
        with path.open("w", encoding="utf-8") as stream:
            number, size = 0, 0
            while size < megabytes << 20:
                chunk = "".join(line.format(n=number + index) for index in range(2000))
                if number == 600_000 or (size == 0 and megabytes < 80):
                    chunk += "FAILED: k.cu.o\nnvcc fatal   : Unsupported gpu architecture 'compute_35'\n"
                number += 2000
                size += stream.write(chunk)
        os.environ.pop("GREP_OPTIONS", None)
        grep = min(
            _timed(lambda: subprocess.run(["grep", "-cE", words, str(path)], capture_output=True, check=False))
            for _ in range(3)
        )
        ours = min(_timed(lambda: diagnose_file(path)) for _ in range(3))
        found = diagnose_file(path)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{megabytes} MB, {found.lines:,} lines: {ours:.2f} s, grep -cE {grep:.2f} s, ratio {ours / grep:.1f}, "
              f"peak memory {peak:.0f} MB, found {found.causes[0].label if found.causes else 'nothing'}")  # fmt: skip


def _timed(work: Callable[[], object]) -> float:
    """Processor time, ours and that of what we started: the machine may be busy with other things."""
    start = _spent()
    work()
    return _spent() - start


def _spent() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def measure_fuzz(count: int) -> None:
    """Mutated logs: nothing runs away, nothing crashes, no control character comes through."""
    cases = corpus()
    seeds = [case.text.encode() for case in cases] if cases else [path.read_bytes()[:4000] for path in good_logs()]
    dice = random.Random(0)
    slowest = 0.0
    for _ in range(count):
        data = bytearray(dice.choice(seeds))
        for _ in range(dice.randrange(1, 40)):
            if not data:
                break
            at = dice.randrange(len(data))
            what = dice.randrange(5)
            if what == 0:
                data[at] = dice.randrange(256)
            elif what == 1:
                del data[at : at + dice.randrange(1, 60)]
            elif what == 2:
                data[at:at] = bytes(dice.randrange(256) for _ in range(dice.randrange(1, 30)))
            elif what == 3:
                data[at:at] = data[at : at + dice.randrange(1, 200)] * dice.randrange(1, 20)
            else:
                data[at:at] = dice.choice(
                    (b"\x1b[2J", b"\x1b]0;x\x07", b"\0\0", b"\r", b"\xff\xfe", b"\xe2\x80\xae", b"A" * 9000)
                )
        start = time.process_time()
        found = diagnose_text(bytes(data))
        slowest = max(slowest, time.process_time() - start)
        shown = [item.text for cause in found.causes for item in cause.evidence] + [
            item.text for item in found.wrappers
        ]
        bad = [
            text
            for text in shown
            if any((ord(letter) < 32 and letter != "\t") or 127 <= ord(letter) < 160 for letter in text)
        ]
        if bad:
            raise SystemExit(f"a control character came through: {bad[0]!r}")
    print(f"{count:,} mutated logs: no crash, slowest {1000 * slowest:.0f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one depth per excerpt, 20 MB, 300 mutations")
    parser.add_argument("--mutations", type=int, default=1000)
    options = parser.parse_args()
    paths = good_logs()
    measure_corpus(Host(paths) if paths else None, 1 if options.quick else 5)
    measure_negatives(paths)
    measure_speed(20 if options.quick else 200)
    measure_fuzz(300 if options.quick else options.mutations)


if __name__ == "__main__":
    main()
