"""Asks two installs of PyTorch the same questions on one card and compares the answers, entry by entry.

    python -m tools.twins ask PYTHON ANSWERS.JSON [--first FOLDER] [--processes 8] [--seconds 1800]
    python -m tools.twins compare OFFICIAL.JSON OTHER.JSON

`ask` runs PYTHON and keeps what the dispatcher has for CUDA keys, and the table of operators as `verify` goes through
it. FOLDER is looked into before PYTHON's own packages: that is how a second torch is asked with the rest unchanged.
The answers name the libraries that were loaded. `compare` ends with 1 when an entry differs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from rekindle.build.graft.backend import PLACE  # noqa: E402
from rekindle.core.run import call  # noqa: E402
from rekindle.wheels.verify import trial  # noqa: E402

DISPATCHER = """
import json, torch
torch.cuda.init()
def cuda(text):
    return [line for line in text.splitlines() if "CUDA" in line.split(":")[0]]
c = torch._C
names = sorted(c._dispatch_get_all_op_names())
with open("/proc/self/maps") as maps:
    libraries = sorted({line.split()[-1] for line in maps if "libtorch_cuda" in line or "libc10_cuda" in line})
print("MARK" + json.dumps({
    "libraries": libraries,
    "registered": {name: cuda(c._dispatch_dump(name)) for name in names},
    "computed": {name: cuda(c._dispatch_dump_table(name)) for name in names},
}))
""".replace("MARK", trial.MARK)


def main() -> int:
    options = _options()
    if options.what == "ask":
        folders = [str(options.first)] if options.first else []
        paths = os.pathsep.join([*folders, *filter(None, [os.environ.get("PYTHONPATH")])])
        env = {**os.environ, "PYTHONPATH": paths}
        trip = trial.Trip(python=options.python, env=env, processes=options.processes, seconds=options.seconds)
        options.answers.write_text(json.dumps(ask(trip)), encoding="utf-8")
        return 0
    one, other = (json.loads(path.read_text(encoding="utf-8")) for path in (options.official, options.other))
    found = list(differences(one, other))
    counts = {name: sum(len(entry) for entry in one[name].values()) for name in ("registered", "computed")}
    print(f"libraries: {one['libraries']} and {other['libraries']}")
    print(f"{counts['registered']} registered, {counts['computed']} computed, {len(one['operators'])} of operators")
    print("\n".join([*found, f"{len(found)} differences"]))
    return 1 if found else 0


def ask(trip: trial.Trip) -> dict[str, Any]:
    said = call([trip.python, "-c", DISPATCHER], env=trip.env, timeout=300)
    lines = trial.lines_of(said.out)
    if not lines:
        raise SystemExit(f"{trip.python} did not answer: {said.err.strip()[-400:]}")
    table = trial.compare_operators(trip)
    if not table.whole:
        raise SystemExit(table.problem or f"{table.not_reached} operators were not reached: give it more --seconds")
    rows = {"/".join(one.key): [one.result, one.why] for one in table.results}
    return {**lines[0], "operators": rows}


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    """An entry that only one of both has differs too."""
    for table in ("registered", "computed", "operators"):
        for name in sorted({*one[table], *other[table]}):
            first, second = (_placeless(side[table].get(name)) for side in (one, other))
            if first != second:
                yield f"{table}: {name}: {first} | {second}"


def _placeless(entry: list[str] | None) -> list[str] | None:
    return None if entry is None else [PLACE.sub(r"registered at \1", line) for line in entry]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="what", required=True)
    asked = commands.add_parser("ask")
    asked.add_argument("python", type=Path)
    asked.add_argument("answers", type=Path)
    asked.add_argument("--first", type=Path)
    asked.add_argument("--processes", type=int, default=8)
    asked.add_argument("--seconds", type=float, default=1800.0)
    compared = commands.add_parser("compare")
    compared.add_argument("official", type=Path)
    compared.add_argument("other", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
