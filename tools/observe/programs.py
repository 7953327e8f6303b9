"""Holds the releases of `builds/programs.toml` against the package index: is the code in their wheels what a row says?

    python -m tools.observe.programs [PROGRAM...] [--newer]

A row whose source names a library of a wheel (`vllm/_C.abi3.so of vllm-0.22.1-….whl`) is read again: the GPU code of
that library, the torch that METADATA pins, and the Pythons. `--newer` only asks whether the index has a newer release
than the newest row. Nothing is written: a row that differs is for a person to correct, with what is printed. Rows that
come from scripts and notes say so in their source. Exits with 0 when every row agrees, 3 when one differs, 9 when one
was not read.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from rekindle.core.errors import RekindleError
from rekindle.formats import package
from rekindle.knowledge.builds import programs
from rekindle.knowledge.builds.programs import ProgramRelease
from rekindle.model.requirement import requirement
from rekindle.model.wheel import read_name
from tools.observe import web

_READ = re.compile(r"(?P<library>\S+) of (?P<wheel>\S+\.whl)")


def differences(row: ProgramRelease, found: package.Package, library: str) -> Iterator[str]:
    """What the wheel says otherwise than its row."""
    # `thrust` is `thrust.cpython-312-x86_64-linux-gnu.so` or `thrust.cp312-win_amd64.pyd`.
    called = re.compile(rf"(?:.*/)?{re.escape(library)}(?:\.(?:cpython-|cp|so|pyd)[^/]*)?\Z")
    member = next(filter(called.match, found.files), None)
    if member is None:
        yield f"there is no {library} in it"
        return
    code = found.binary(member).code.targets
    stated = set(map(str, row.targets))
    if set(code) != stated:
        # A target of a few parts may be left out of a row on purpose: it serves nobody.
        more = ", ".join(f"{name} in {code[name]} parts" for name in code if name not in stated) or "nothing"
        less = ", ".join(sorted(stated - set(code))) or "nothing"
        yield f"its code has {more} that the row has not, and lacks {less}"
    fields = package.headers(found, "METADATA")
    asked = [each for line in fields.get("Requires-Dist", []) if (each := requirement(line)) and each.name == "torch"]
    pins = {each.version for line in asked for each in line.specifier if each.operator == "=="}
    if row.torch and pins and row.torch not in pins:
        yield f"it pins torch {', '.join(sorted(pins))}, the row says {row.torch}"
    pythons = SpecifierSet(next(iter(fields.get("Requires-Python", [])), ""))
    wrong = [each for each in row.pythons if not pythons.contains(each)]
    if wrong:
        yield f"it does not take Python {', '.join(wrong)}"


def newest(project: str) -> Version:
    """The newest release of a project on the index that was not withdrawn."""
    found = [Version(read_name(name).version) for name, _, withdrawn in web.wheels(project) if not withdrawn]
    return max((each for each in found if not each.is_prerelease), default=Version("0"))


def held(row: ProgramRelease, match: re.Match[str]) -> list[str]:
    project = canonicalize_name(read_name(match["wheel"]).project)
    address = next((url for name, url, _ in web.wheels(project) if name == match["wheel"]), None)
    if address is None:
        return [f"{match['wheel']} is not on the index"]
    with web.opened(address) as found:
        return list(differences(row, found, match["library"]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*")
    parser.add_argument("--newer", action="store_true")
    options = parser.parse_args()
    state = 0
    for program in programs.programs():
        if options.programs and program.id not in options.programs:
            continue
        read = [(row, match) for row in programs.releases(program.id) if (match := _READ.search(row.source))]
        for row, match in [] if options.newer else read:
            try:
                wrong = held(row, match)
            except (RekindleError, SystemExit) as problem:
                state = state or 9
                print(f"UNVERIFIED {program.id} {row.version}: {problem}")
                continue
            state = 3 if wrong else state
            print(f"{'DIFFERS' if wrong else 'agrees':<10} {program.id} {row.version} {'; '.join(wrong)}")
        names = [read_name(match["wheel"]) for _, match in read]
        for name in dict.fromkeys(each.project for each in names):
            mine = max(Version(each.version) for each in names if each.project == name)
            there = newest(canonicalize_name(name))
            state = 3 if there > mine else state
            print(f"{'NEWER' if there > mine else 'newest':<10} {name} {there}; the newest row is of {mine}")
    return state


if __name__ == "__main__":
    sys.exit(main())
