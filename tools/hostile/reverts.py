"""Takes one fix of a reader back at a time and asks whether the generator finds its fault again.

    python -m tools.hostile.reverts [--only WORD] [--seed 7] [--count 10000] [--seconds 600]

The fix is taken out of a copy of the source; the tree itself is not touched. Prints a row of the table in
docs/concepts/untrusted-input.md for each.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Revert(NamedTuple):
    """`old` is the fix as it stands in the module, `new` what it was before, or the same without effect."""

    fix: str
    reader: str
    module: str
    old: str
    new: str


ELF, PE, BUDGET = "formats/elf.py", "formats/pe.py", "formats/budget.py"
DIRECTORY, TAR = "formats/zip_directory.py", "formats/tar.py"
REVERTS = (
    Revert("work is counted", "elf", BUDGET, "if self._steps < 0:", "if False:"),
    Revert("work is counted", "elf in a wheel", BUDGET, "if self._steps < 0:", "if False:"),
    Revert("work is counted", "pe", BUDGET, "if self._steps < 0:", "if False:"),
    Revert("what is kept is counted", "elf", BUDGET, "if self._kept < 0:", "if False:"),
    Revert(
        "values of the dynamic section are looked up by tag", "elf", ELF,
        "return self._values.get(tag)", "return next((v for t, v in self.dynamic if t == tag), None)",
    ),
    Revert("a library links at most 2,048 others", "elf", ELF, "_MOST_NEEDED = 2048", "_MOST_NEEDED = 1 << 40"),
    Revert("at most 1,170 program headers", "elf in a wheel", ELF, "_MOST_SEGMENTS = 1170", "_MOST_SEGMENTS = 1 << 40"),
    Revert(
        "bytes held of a compressed member are limited", "elf in a wheel", BUDGET,
        "self.held = _HELD + size", "self.held = 1 << 40",
    ),
    Revert("at most 96 sections", "pe", PE, "_MOST_SECTIONS = 96", "_MOST_SECTIONS = 1 << 40"),
    Revert(
        "names and ordinals are counted", "pe", PE,
        "self.source.budget.keep(_NUMBER_OBJECT", "int(_NUMBER_OBJECT",
    ),
    Revert("headers of GPU code are counted", "fatbin", "formats/fatbin.py", "self.budget.spend(2)", "pass"),
    Revert(
        "a name of a static archive is cut out alone", "static archive", "formats/static.py",
        "rest = names[at_name : at_name + 4096]", "rest = names[at_name:]",
    ),
    Revert("the directory lies right before its end", "zip", DIRECTORY, "if begin + size != place:", "if False:"),
    Revert(
        "no zip64 record unless announced", "zip", DIRECTORY,
        "if wide != (locator[:4] == layout.LOCATOR_MARK):", "wide = locator[:4] == layout.LOCATOR_MARK\n    if False:",
    ),
    Revert("nothing before the first member", "zip", DIRECTORY, "if last is None and member.offset:", "if False:"),
    Revert(
        "both headers agree", "zip", DIRECTORY,
        "if stated != (member.flags, member.method, member.crc, member.packed, member.size) and not (",
        "if False and not (",
    ),
    Revert(
        "encrypted members are refused", "zip", DIRECTORY,
        "if flags & (layout.ENCRYPTED | layout.STRONG | layout.MASKED):", "if False:",
    ),
    Revert("a name listed twice is refused", "zip", DIRECTORY, "if member.name in names:", "if False:"),
    Revert(
        "names beyond ASCII only as UTF-8", "zip", DIRECTORY,
        'name.decode("utf-8" if flags & layout.UTF8 else "ascii")', 'name.decode("utf-8")',
    ),
    Revert(
        "what a zip unpacks to is limited", "zip bomb", DIRECTORY, "unpacking.member(member.size)", "pass",
    ),
    Revert(
        "a flag that names no code for a card", "build.ninja", "build/configure/cmake_result.py",
        "if _TARGET.fullmatch(code)", "if code",
    ),
    Revert("files and folders of a tarball are counted", "tar", "source/request.py", "self._members < 0", "False"),
    Revert("headers of a tarball stand in a short row", "tar", TAR, "tar.chain > _LONGEST_CHAIN", "False"),
    Revert(
        "headers of a tarball have a longest length", "tar", TAR,
        "self.size > _LONGEST_HEADER or tar.header_bytes < 0", "False",
    ),
)  # fmt: skip


def main() -> int:
    words = _words()
    missed = 0
    for revert in REVERTS:
        if words.only and words.only not in f"{revert.fix} {revert.reader}":
            continue
        found = _found(revert, words)
        missed += found is None
        print(f"| {revert.fix} | {revert.reader} | {'not found' if found is None else found} |", flush=True)
    return int(missed > 0)


def _found(revert: Revert, words: argparse.Namespace) -> str | None:
    """The number of the first file that shows the fault, and how it shows."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "src")
        shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
        module = copy / "rekindle" / revert.module
        text = module.read_text(encoding="utf-8")
        if text.count(revert.old) != 1:
            message = f"`{revert.old}` stands {text.count(revert.old)} times in {revert.module}, not once"
            raise SystemExit(message)
        module.write_text(text.replace(revert.old, revert.new), encoding="utf-8")
        command = [sys.executable, "-m", "tools.hostile", "--only", revert.reader, "--seed", str(words.seed)]
        command += ["--count", str(words.count), "--stop"]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(copy), str(ROOT)])}
        try:
            result = subprocess.run(
                command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=words.seconds, check=False
            )
        except subprocess.TimeoutExpired:
            return None
    match = re.search(r"file (\d+) of seed \d+ \(\d+ bytes\): (\w+)", result.stdout)
    if match is None and result.returncode:
        raise SystemExit(result.stderr)
    return f"{match[1]} ({match[2]})" if match else None


def _words() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.hostile.reverts")
    parser.add_argument("--only", help="fixes and readers with this word")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seconds", type=int, default=600, help="for each fix")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
