"""What `verify --stand-in` can read without a card: may this run as a stand-in at all, and what the old card would say.

The old card's machine code never runs on the stand-in; but it lies in the wheel beside the PTX, and its registers,
shared memory and names can be read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from rekindle.compat.gpu_code import served
from rekindle.core import files
from rekindle.core.errors import BadInput
from rekindle.core.findings import Finding, State, failed, passed, unverified
from rekindle.formats import cubin, gpu_payload
from rekindle.formats.access import File
from rekindle.formats.binary import Binary, codes
from rekindle.formats.cubin import CubinKernel
from rekindle.formats.fatbin import Container, Kind, sorted_out
from rekindle.formats.package import Folder, Package
from rekindle.knowledge.cuda.libraries import is_vendor_library
from rekindle.knowledge.gpu.capabilities import LaunchLimits
from rekindle.knowledge.gpu.capability import Coverage, Runs, runs
from rekindle.model.card import Capability, Target
from rekindle.wheels.inspect.identity import read_binaries

_NAMED = 8
# Where the source of 1.13.1 has no way but MAGMA: AT_MAGMA_ENABLED in BatchLinearAlgebra.cpp.
_NEEDS_MAGMA = (
    "torch.symeig",
    "torch.linalg.eig",
    "torch.linalg.eigvals",
    "torch.linalg.ldl_factor of Hermitian matrices",
)


class OwnCode(msgspec.Struct, frozen=True, kw_only=True):
    """The wheel's own GPU code, as opposed to NVIDIA's libraries in it."""

    own: tuple[Binary, ...]
    vendor: tuple[Binary, ...]
    binaries: tuple[Binary, ...]

    @property
    def containers(self) -> tuple[tuple[str, Container], ...]:
        found = ((one.name, container) for one in self.own for container in sorted_out(one.containers)[0])
        return tuple((name, container) for name, container in found if container.code)

    @property
    def ptx(self) -> tuple[Target, ...]:
        return tuple(sorted({target for _, one in self.containers for target in one.targets if target.ptx}))


def own_code(package: Package) -> OwnCode:
    binaries = tuple(read_binaries(package))
    with_code = [one for one in binaries if one.containers]
    return OwnCode(
        own=tuple(one for one in with_code if not is_vendor_library(one.file)),
        vendor=tuple(one for one in with_code if is_vendor_library(one.file)),
        binaries=binaries,
    )


def refusal(code: OwnCode, old: Target, stand_in: Capability) -> Finding | None:
    """Why this cannot be shown on that card: nothing of its own runs there, native code would, or the wrong PTX."""
    containers = code.containers
    if not containers:
        return _refused("it has no GPU code of its own", "there is nothing to run")
    native = [
        (file, target)
        for file, one in containers
        for target in one.targets
        if not target.ptx and runs(target, stand_in) is Runs.NATIVE
    ]
    if native:
        names = ", ".join(sorted({str(target) for _, target in native}))
        number = len({file for file, _ in native})
        count = "1 library" if number == 1 else f"{number} libraries"
        return _refused(
            f"{count} with native code for the stand-in ({names}, such as {native[0][0]})",
            f"the driver would run that code instead of {old}, and nothing would be shown about the old card",
        )
    chosen = [(file, _chosen(one, stand_in)) for file, one in containers]
    without = sorted({file for file, target in chosen if target is None})
    if without:
        number = sum(target is None for _, target in chosen)
        return _refused(
            f"{number} of {len(containers)} containers of GPU code have no PTX (such as in {without[0]})",
            "without PTX nothing of it runs on a newer card",
            f"build it with `{old.capability}+PTX`",
        )
    wrong = [(file, target) for file, target in chosen if target != old]
    if wrong:
        return _refused(
            f"the driver would take {wrong[0][1]} instead of {old} in {len(wrong)} of {len(containers)} containers "
            f"(such as in {wrong[0][0]})",
            "what ran would not be the old card's own code",
        )
    return None


def launch_limits(kernels: Sequence[ReadKernels], limit: LaunchLimits | None, old: Target) -> Finding:
    """Line 3: kernels that could not be launched on the old card, by what its own machine code takes."""
    known = [kernel for one in kernels for kernel in one.cubin]
    if limit is None:
        return unverified("launch-limits", f"the limits of compute capability {old.capability} are not in the tables")
    if not known:
        return unverified("launch-limits", f"there is no machine code for {old.capability.sm} to read")
    refused = [kernel for kernel in known if _problem(kernel, limit)]
    if refused:
        named = "; ".join(f"{kernel.name[:80]}: {_problem(kernel, limit)}" for kernel in refused[:_NAMED])
        return failed(
            "launch-limits",
            f"{len(refused)} of {len(known)} kernels cannot be launched on {limit.card}: {named}",
            why="the stand-in has more registers and shared memory, so they ran there",
        )
    most = max(kernel.registers for kernel in known)
    narrow = [
        kernel
        for kernel in known
        if kernel.max_threads is None and limit.largest_block(kernel.registers) < limit.threads_per_block
    ]
    text = (
        f"all {len(known)} kernels for {old.capability.sm} fit {limit.card}: at most {most} registers, "
        f"{max(kernel.shared for kernel in known)} bytes of shared memory"
    )
    if narrow:
        least = min(limit.largest_block(kernel.registers) for kernel in narrow)
        text += (
            f"; {len(narrow)} without launch bounds take blocks of fewer than {limit.threads_per_block} threads "
            f"(the narrowest: {least})"
        )
    return passed("launch-limits", text)


def kernel_names(kernels: Sequence[ReadKernels], old: Target) -> Finding:
    """Line 4: what ran as PTX is what the old card would find as machine code."""
    cubins = {(one.file, one.offset, kernel.name) for one in kernels for kernel in one.cubin}
    texts = {(one.file, one.offset, name) for one in kernels for name in one.ptx}
    if not cubins:
        return unverified("kernel-names", f"there is no machine code for {old.capability.sm} to compare the PTX with")
    missing = sorted(name for _, _, name in texts - cubins)
    surplus = sorted(name for _, _, name in cubins - texts)
    if missing or surplus:
        parts = []
        if missing:
            parts.append(f"{len(missing)} only as PTX ({_some(missing)})")
        if surplus:
            parts.append(f"{len(surplus)} only as machine code ({_some(surplus)})")
        return failed(
            "kernel-names",
            f"machine code and PTX differ: {', '.join(parts)}",
            why="the old card would not run what ran here",
        )
    return passed(
        "kernel-names",
        f"the same {len(cubins)} kernels as {old.capability.sm} machine code and as {old}, "
        f"in {len([one for one in kernels if one.ptx])} containers",
    )


class ReadKernels(msgspec.Struct, frozen=True, kw_only=True):
    """One container: the kernels of the old card's machine code, and those of its PTX."""

    file: str
    offset: int
    cubin: tuple[CubinKernel, ...]
    ptx: frozenset[str]


def _kernels_of(package: Package, binary: Binary, old: Target) -> Iterator[ReadKernels]:
    with _on_disk(package, binary.name) as path, File(path, binary.name) as file:
        for container in sorted_out(binary.containers)[0]:
            machine: tuple[CubinKernel, ...] = ()
            names: frozenset[str] = frozenset()
            for entry in container.entries:
                if entry.target.capability != old.capability or entry.target.suffix:
                    continue
                if entry.kind == Kind.CUBIN:
                    machine += cubin.kernels(gpu_payload.payload(file, entry), binary.name)
                elif entry.kind == Kind.PTX:
                    names |= cubin.ptx_kernels(gpu_payload.payload(file, entry))
            yield ReadKernels(file=binary.name, offset=container.offset, cubin=machine, ptx=names)


@contextlib.contextmanager
def _on_disk(package: Package, name: str) -> Iterator[Path]:
    """A library of a wheel is deflated; its kernels are read here and there, so it is unpacked for a while."""
    if isinstance(package, Folder):
        yield package.root / name
        return
    with files.scratch("stand-in") as folder:
        path = folder / "library"
        path.write_bytes(package.read(name, limit=package.files[name]))
        yield path


def vendor_libraries(libraries: Iterable[Binary], old: Target) -> Finding:
    """Line 5: NVIDIA's libraries run code of their own; for the old card it must at least be there."""
    found = sorted((one for one in libraries if codes([one])), key=lambda one: one.file)
    if not found:
        return unverified(
            "libraries",
            f"the CUDA libraries are not in it, so it was not read whether they have code for {old.capability.sm}",
        )
    lacking = [one.file for one in found if served(one.code, old.capability).coverage is Coverage.NO]
    if lacking:
        return failed(
            "libraries",
            f"no code for {old.capability.sm} in {', '.join(lacking)}",
            why="what they compute ran on the stand-in's own kernels; on the old card it fails",
            fix="take the libraries of the last CUDA and cuDNN that served the card",
        )
    return passed(
        "libraries",
        f"all {len(found)} of NVIDIA's libraries have code for {old.capability.sm}: "
        f"{', '.join(one.file for one in found)}; what they computed here ran on the stand-in's own kernels and is "
        "not proven",
    )


def magma_line(code: OwnCode) -> Finding:
    """Line 5, too: without MAGMA some of torch.linalg raises on the card."""
    symbols = [one.symbols for one in code.binaries if one.symbols is not None]
    if not symbols:
        return unverified("magma", "its libraries offer no symbols, so it was not read whether MAGMA is in it")
    inside = any(one.file.startswith(("libmagma", "magma")) for one in code.binaries) or any(
        name.startswith("magma_") for one in symbols for name in (*one.defined, *one.undefined)
    )
    text = "MAGMA is in it" if inside else f"MAGMA is not in it: on the card these raise: {', '.join(_NEEDS_MAGMA)}"
    return Finding(id="magma", state=State.PASS if inside else State.WARN, found=text)


def driver_entry_points(code: OwnCode, exported: frozenset[str] | None, branch: str) -> Finding:
    """Line 6: the functions of the driver that the wheel's libraries link to, in the old card's last driver."""
    wanted = {
        name
        for one in code.binaries
        if one.symbols is not None and one.elf is not None and "libcuda.so.1" in one.elf.needed
        for name in one.symbols.undefined
        if name.startswith("cu") and name[2:3].isupper()
    }
    if exported is None:
        return unverified(
            "old-driver",
            f"{len(wanted)} driver functions are linked; the library of driver {branch} was not given",
            fix="name its `libcuda.so.1` with `--old-driver FILE`",
        )
    missing = sorted(wanted - exported)
    if missing:
        return failed(
            "old-driver",
            f"driver {branch} lacks {len(missing)} of {len(wanted)} functions: {_some(missing)}",
            why="it will not load with the old card's driver",
        )
    return passed("old-driver", f"driver {branch} has all {len(wanted)} functions that are linked")


def _chosen(container: Container, stand_in: Capability) -> Target | None:
    """The PTX that the driver takes: the newest that the card can run."""
    fitting = [target for target in container.targets if target.ptx and runs(target, stand_in) is not Runs.NO]
    return max(fitting, default=None)


def _problem(kernel: CubinKernel, limit: LaunchLimits) -> str | None:
    if kernel.registers > limit.registers_per_thread:
        return f"{kernel.registers} registers, at most {limit.registers_per_thread}"
    if kernel.shared > limit.shared_per_block:
        return f"{kernel.shared} bytes of shared memory, at most {limit.shared_per_block}"
    if limit.largest_block(kernel.registers) == 0:
        return f"{kernel.registers} registers leave no room for a single warp"
    if kernel.max_threads and kernel.max_threads > limit.threads_per_block:
        return f"{kernel.max_threads} threads, at most {limit.threads_per_block}"
    if kernel.max_threads and kernel.max_threads > limit.largest_block(kernel.registers):
        return f"{kernel.max_threads} threads of {kernel.registers} registers"
    return None


def _refused(found: str, why: str, fix: str | None = None) -> Finding:
    return failed("refused", found, why=why, fix=fix)


def _some(names: Sequence[str]) -> str:
    return ", ".join(name[:80] for name in names[:_NAMED]) + (", …" if len(names) > _NAMED else "")


def readable(package: Package, code: OwnCode, old: Target) -> tuple[tuple[ReadKernels, ...], Finding | None]:
    """The kernels, or the finding that says why they could not be read."""
    try:
        return tuple(found for one in code.own for found in _kernels_of(package, one, old)), None
    except BadInput as error:
        return (), unverified("launch-limits", error.message)
