"""The result of following a package's libraries, and the findings in it."""

from __future__ import annotations

from enum import Enum

import msgspec

from rekindle.core.command import pip_install, rekindle
from rekindle.core.findings import Finding, Fix, State, failed, passed, unverified, warned
from rekindle.knowledge.cuda.libraries import owner_of


class LoadTime(str, Enum):
    """When a library is looked for: as the file loads, at the first call into it, or by name while the program runs.
    `NAMED`: its name stands in the file's data, which shows no more than that it may be loaded."""

    IMPORT = "import"
    DELAYED = "delayed"
    RUN_TIME = "run-time"
    NAMED = "named"

    @property
    def verb(self) -> str:
        verbs = {"import": "links it", "delayed": "loads it at first use", "run-time": "loads it while running"}
        return verbs.get(self.value, "names it")


class MissingLibrary(msgspec.Struct, frozen=True, kw_only=True):
    """A library that the package does not bring. `owner` says who would (None: nobody known), `how` when it is wanted.

    `chain` is the way to it from a file that is loaded first; `inside` is where it lies in the package all the same,
    out of the loader's way.
    """

    library: str
    how: LoadTime
    wanted_by: tuple[str, ...]
    chain: tuple[str, ...]
    owner: str | None = None
    note: str = ""
    package: str | None = None
    inside: str | None = None
    alternative: bool = False
    """Only one of several files of the package wants it, and another of them does without."""


class Brought(msgspec.Struct, frozen=True, kw_only=True):
    """A library that another distribution brings, which this one requires."""

    library: str
    distribution: str
    wanted_by: tuple[str, ...]


class OutsideLibrary(msgspec.Struct, frozen=True, kw_only=True):
    """A library found only in a place that depends on the machine: PATH, the CUDA folder."""

    library: str
    where: str
    wanted_by: tuple[str, ...]


class Skew(msgspec.Struct, frozen=True, kw_only=True):
    """Symbols that `file` wants from `library` (None: from any) and that are not exported there."""

    file: str
    library: str | None
    symbols: tuple[str, ...]
    count: int
    torch: str | None = None
    """The torch that lacks them, where they are torch's."""


class WrongMachine(msgspec.Struct, frozen=True, kw_only=True):
    file: str
    machine: str
    wanted_by: str
    wanted: str


class Duplicate(msgspec.Struct, frozen=True, kw_only=True):
    library: str
    files: tuple[str, ...]
    openmp: bool = False


class Closure(msgspec.Struct, frozen=True, kw_only=True):
    """`links` counts the library links that were followed, `symbols` the imported symbols that were looked up.

    `brought` are the libraries of an extension that come with torch.
    """

    system: str
    links: int
    symbols: int
    missing: tuple[MissingLibrary, ...] = ()
    outside: tuple[OutsideLibrary, ...] = ()
    skew: tuple[Skew, ...] = ()
    wrong_machine: tuple[WrongMachine, ...] = ()
    duplicates: tuple[Duplicate, ...] = ()
    system_files: tuple[str, ...] = ()
    """Files of Windows or of the driver inside the package."""
    tests: tuple[str, ...] = ()
    brought: tuple[Brought, ...] = ()
    against: str | None = None
    """The torch that what comes with torch was checked against; None: there was none to check against."""


def findings(closure: Closure, *, alone: bool = False) -> list[Finding]:
    """What is amiss. Of a file that is looked at `alone`, what it lacks may well be where it is loaded from."""
    found = [_missing(item, closure.system, alone) for item in closure.missing if item.owner != "optional"]
    found += _optional([item for item in closure.missing if item.owner == "optional"])
    found += [_outside(item) for item in closure.outside]
    found += [_skew(item, closure.system) for item in closure.skew]
    found += [_wrong_machine(item, closure.system) for item in closure.wrong_machine]
    found += [_duplicate(item) for item in closure.duplicates]
    found += [] if alone else [_system_file(name, closure.system) for name in closure.system_files]
    found += [_test(name) for name in closure.tests]
    found += _with_torch(closure)
    if not found:
        text = f"all {closure.links} library links lead to a file in the package, the system, the driver"
        found = [passed("closure", text)]
    return found


_BROUGHT_BY = {
    "python": State.PASS,
    "redistributable": State.WARN,
    "package": State.WARN,
    "optional": State.WARN,
    "compiler": State.WARN,
}


def _missing(item: MissingLibrary, system: str, alone: bool) -> Finding:
    state = _BROUGHT_BY.get(item.owner or "", State.FAIL)
    if item.alternative:
        state = State.PASS
    if item.inside or item.how is LoadTime.NAMED or (item.owner is None and item.how is LoadTime.DELAYED):
        state = State.WARN
    if alone and state is not State.PASS:
        state = State.UNVERIFIED
    where = "beside it" if alone else "found" if item.inside else "in the package"
    verb = item.how.verb
    way = " -> ".join(item.chain)
    code = "`WinError 126`, which names another file" if system == "windows" else "`cannot open shared object file`"
    whose = f": {item.note}" if item.note else ""
    why = f"if it is missing, loading fails with {code}"
    if item.how is LoadTime.NAMED:
        why = "no import table has it: what loads it by name while running fails without it, or does without"
    if len(item.chain) > 2:
        why = f"needed through: {way}; {why}"
    fix = None
    if item.package == "torch" and item.wanted_by[0].startswith("torch/"):
        fix = Fix(text="this torch is not complete: add the file with `rekindle repair`, or take another build of it")
    elif item.package and item.package != "torch" and "*" not in item.package:
        fix = Fix(
            text=f"the package `{item.package}` provides it", commands=(pip_install([item.package], python="python"),)
        )
    elif state is State.FAIL and item.owner in ("torch", "torch-cuda"):
        text = "it comes with torch: install a torch with CUDA that this was built for (`rekindle install`)"
        fix = Fix(text=f"{text}, or find or build this for the torch there (`rekindle extension find`, `build`)")
    elif state is State.FAIL:
        fix = Fix(text="add it with `rekindle repair`, or build without what needs it")
    return Finding(
        id="closure.missing",
        state=state,
        found=f"`{item.library}` is not {where}{whose}; `{item.wanted_by[0]}` {verb}"
        + (f" and {len(item.wanted_by) - 1} more do" if len(item.wanted_by) > 1 else ""),
        why=why,
        fix=fix,
    )


def _optional(items: list[MissingLibrary]) -> list[Finding]:
    """What a package can do without: one word for all of it."""
    if not items:
        return []
    more = f" and {len(items) - 1} more are" if len(items) > 1 else " is"
    text = f"`{items[0].library}`{more} not in the package: {items[0].note}; `{items[0].wanted_by[0]}` links it"
    return [warned("closure.optional", text)]


def _with_torch(closure: Closure) -> list[Finding]:
    """What an extension leaves to torch: checked against that torch where it is at hand, else said to be unchecked."""
    if not closure.brought:
        return []
    names = ", ".join(f"`{item.library}`" for item in closure.brought[:3])
    names += f" and {len(closure.brought) - 3} more" if len(closure.brought) > 3 else ""
    verb = "comes" if len(closure.brought) == 1 else "come"
    if closure.against is None:
        return [
            unverified(
                "closure.torch",
                f"{names} {verb} with torch; the torch it was built for is not here to check against",
                why="an extension works only with the torch, the CUDA and the C++ ABI that it was built for",
                fix="name that torch, a wheel or an environment, with `--against`",
            )
        ]
    return [passed("closure.torch", f"{names} {verb} with torch; {closure.against} has them")]


def _outside(item: OutsideLibrary) -> Finding:
    return warned(
        "closure.outside",
        f"`{item.library}` is found only in {item.where}; `{item.wanted_by[0]}` needs it",
        why="it works on this machine and in this shell; on another one, or with another PATH, torch does not load",
        fix="put it into the wheel with `rekindle repair`",
    )


def _skew(item: Skew, system: str) -> Finding:
    where = f"`{item.library}` does not export" if item.library else "no library of the package exports"
    if item.torch:
        where = f"{item.torch} does not have"
    code = "WinError 127, which names no symbol" if system == "windows" else "undefined symbol"
    return failed(
        "closure.skew",
        (
            f"`{item.file}` wants {item.count} symbols that {where}: {', '.join(item.symbols[:3])}"
            + (", …" if item.count > 3 else "")
        ),
        why=f"they come from different builds; loading fails with {code}",
        fix="install its build for this torch" if item.torch else "use both from the same build",
    )


def _wrong_machine(item: WrongMachine, system: str) -> Finding:
    code = "WinError 193" if system == "windows" else "wrong ELF class or a missing library"
    return failed(
        "closure.machine",
        f"`{item.file}` is for {item.machine}; `{item.wanted_by}` is for {item.wanted}",
        why=f"a process cannot mix architectures; loading fails with {code}",
        fix=f"replace it with the {item.wanted} file",
    )


def _duplicate(item: Duplicate) -> Finding:
    why = "two OpenMP runtimes in one process crash it with `OMP: Error #15`, or start twice the threads"
    return warned(
        "closure.duplicate",
        f"`{item.library}` is there {len(item.files)} times: {', '.join(f'`{name}`' for name in item.files[:4])}",
        why=why if item.openmp else "which of them is loaded depends on the order of imports",
        fix="keep the one in torch/lib and remove the others",
    )


def _system_file(name: str, system: str) -> Finding:
    file = name.rpartition("/")[2]
    owner = owner_of(file, system)
    return failed(
        "closure.system-file",
        f"`{name}` is {owner.note if owner else 'of the system'}; it must not be in a package",
        why="it fits only the computer it was copied from; elsewhere torch does not load, or the process crashes",
        fix=Fix(text="take it out", commands=(rekindle("repair", "WHEEL", "--remove", file),)),
    )


def _test(name: str) -> Finding:
    return warned(
        "closure.test-library",
        f"`{name}` is a library of PyTorch's tests",
        why="`import torch` loads every DLL of torch/lib; if anything this one needs is missing, torch does not load",
        fix=Fix(text="remove it with `rekindle repair --remove`, or build with BUILD_TEST=0", mechanical=True),
    )
