"""Checks on the cards and their driver."""

from __future__ import annotations

from collections.abc import Iterator

from rekindle.compat import driver_card, driver_cuda
from rekindle.compat.driver_card import Window
from rekindle.compat.judgement import Clash
from rekindle.core.command import Command, rekindle
from rekindle.core.findings import Finding, State
from rekindle.doctor.check import judge, listed, say
from rekindle.knowledge.cuda import toolkits
from rekindle.knowledge.gpu import drivers
from rekindle.knowledge.gpu.names import SHOWN_BY
from rekindle.knowledge.torch.releases import oldest_cuda, torch_releases
from rekindle.machine.model import FoundGpu, Machine
from rekindle.model.card import Capability

# Who has seen the driver drive the card.
_DRIVEN = {"nvml", "nvidia-smi", "cuda"}
# Device Manager codes people meet with a graphics card, in words.
_PROBLEMS = {
    10: ("the card did not start", "reinstall the driver of the branch that serves the card"),
    12: (
        "Windows found no room for the card's memory window (code 12)",
        "turn on `Above 4G Decoding` in the firmware (a Tesla wants 16 GB of addresses), or take another card out",
    ),
    14: ("Windows wants a restart before the card works", "restart"),
    22: ("the card is switched off in the Device Manager", "enable it there"),
    28: ("no driver is installed for the card (code 28)", "install a driver of the branch that serves the card"),
    31: ("Windows could not load the card's driver (code 31)", "install a driver of the branch that serves the card"),
    39: ("the driver is damaged or missing (code 39)", "remove it (DDU does it thoroughly) and install it again"),
    43: (
        "the driver stopped the card because it reported a problem (code 43)",
        "check its power and cooling; in a virtual machine hide the hypervisor; reinstall the driver of its branch",
    ),
    52: ("Windows does not trust the driver's signature (code 52)", "install the signed driver from NVIDIA"),
}


@judge("gpu.present")
def present(machine: Machine) -> Iterator[Finding]:
    if machine.gpus:
        yield say("gpu.present", State.PASS, listed(describe(gpu) for gpu in machine.gpus))
        return
    state, found = State.UNVERIFIED, "the PCI bus could not be read, so a card may be there unseen"
    if not machine.could_not_read("graphics: pci"):
        driver = machine.driver
        running = f", though {listed(driver.sources)} reports driver {driver.version}" if driver else ""
        state, found = State.WARN, f"no NVIDIA card in this machine{running}"
    example = rekindle("plan", "--gpu", "GTX 1080 Ti")
    yield say("gpu.present", state, found, fix="name the card you mean, for example", commands=(example,))


@judge("gpu.capability", "gpu.sources-agree")
def capability(machine: Machine) -> Iterator[Finding]:
    for gpu in machine.gpus:
        name = gpu.name or gpu.pci_id or "a card"
        if gpu.capability:
            yield say("gpu.capability", State.PASS, f"{name}: {gpu.capability}, says {_source(gpu)}")
        elif gpu.candidates:
            yield say(
                "gpu.capability",
                State.UNVERIFIED,
                f"{name} was sold with several chips: {listed(gpu.candidates)} are possible",
                fix=f"its PCI id decides; {SHOWN_BY} shows it, then ask",
                commands=(rekindle("gpu", "10de:XXXX", system=machine.os),),
            )
        else:
            found = f"{name} is not in the tables; it may be newer than they are"
            yield say("gpu.capability", State.UNVERIFIED, found)
        if gpu.clashes:
            yield say("gpu.sources-agree", State.WARN, f"{name}: {listed(gpu.clashes)}")
        elif gpu.sources == ("nvidia-smi",):
            found = f"{name}: only nvidia-smi names it; the PCI bus and the driver's libraries do not"
            yield say("gpu.sources-agree", State.WARN, found)
        elif len(gpu.sources) > 1:
            yield say("gpu.sources-agree", State.PASS, f"{name}: {listed(gpu.sources)} agree")


@judge("gpu.problem")
def problem(machine: Machine) -> Iterator[Finding]:
    for gpu in machine.gpus:
        if gpu.problem:
            found, fix = _PROBLEMS.get(
                gpu.problem,
                (
                    f"Windows reports problem code {gpu.problem} for the card",
                    "open the Device Manager and read its status",
                ),
            )
            yield say("gpu.problem", State.FAIL, f"{gpu.name or gpu.pci_id}: {found}", fix=fix)
        elif gpu.problem == 0:
            yield say("gpu.problem", State.PASS, f"{gpu.name or gpu.pci_id}: works, says Windows")


@judge("gpu.together")
def together(machine: Machine) -> Iterator[Finding]:
    if len(machine.capabilities) < 2:
        return
    oldest, newest = machine.capabilities[0], machine.capabilities[-1]
    windows = [driver_card.window(each, machine.driver_system) for each in machine.capabilities]
    last, first = driver_card.common(windows).last, driver_card.common(windows).first
    if last is not None and first is not None and driver_card.common(windows).empty:
        yield say(
            "gpu.together",
            State.FAIL,
            f"no driver serves both {oldest.sm} and {newest.sm}: "
            f"the first ends with R{last}, the second begins with R{drivers.branch_of(first)} "
            f"(inferred from {_first_cuda(newest)})",
        )
    else:
        yield say("gpu.together", State.PASS, f"one driver can serve {listed(c.sm for c in machine.capabilities)}")


@judge("gpu.driver-model")
def driver_model(machine: Machine) -> Iterator[Finding]:
    for turn, gpu in enumerate(machine.gpus):
        if not gpu.driver_model:
            continue
        able = (gpu.name or "").replace("NVIDIA ", "").startswith(("Tesla", "Quadro", "TITAN", "GeForce GTX TITAN"))
        if gpu.driver_model == "WDDM" and (gpu.name or "").replace("NVIDIA ", "").startswith("Tesla"):
            yield say(
                "gpu.driver-model",
                State.WARN,
                f"{gpu.name} runs under WDDM",
                commands=(Command("nvidia-smi", "-i", str(turn), "-dm", "1", system=machine.os),),
            )
        else:
            more = "" if able else " (the only mode of a GeForce)"
            yield say("gpu.driver-model", State.PASS, f"{gpu.name}: {gpu.driver_model}{more}")


@judge("driver.present")
def driver_present(machine: Machine) -> Iterator[Finding]:
    driver = machine.driver
    if driver and driver.version:
        yield say("driver.present", State.PASS, f"driver {driver.version} (branch R{driver.branch})")
    elif machine.gpus and not machine.could_not_read("driver"):
        held = driver.kernel_module if driver else None
        found = driver_card.ABSENT
        if held and held != "nvidia":
            found += f": the card is held by `{held}`"
        branches = [f"R{last}" for gpu in machine.gpus if gpu.capability and (last := _window(machine, gpu).last)]
        fix = (
            f"install the newest driver of branch {listed(dict.fromkeys(branches))}, the last that serves the card"
            if branches
            else None
        )
        yield say("driver.present", State.FAIL, found, fix=fix, commands=driver_commands(machine, None))


@judge("driver.serves-card")
def driver_serves(machine: Machine) -> Iterator[Finding]:
    driver = machine.driven_by
    if driver is None:
        return
    version = driver.version
    for gpu in machine.gpus:
        if gpu.capability is None:
            continue
        name = f"{gpu.name or gpu.pci_id} ({gpu.capability})"
        own = _window(machine, gpu)
        last = own.last
        answer = driver_card.drives(driver, name, own)
        if isinstance(answer, Clash) and own.is_after(version):
            yield say(
                "driver.serves-card",
                State.FAIL,
                answer.sentence,
                fix=f"remove this driver and install the newest of R{last}; take CUDA's installer without its driver",
                commands=driver_commands(machine, last),
            )
        elif isinstance(answer, Clash):
            # It is inferred from the toolkits, and a driver that shows the card knows better.
            yield say(
                "driver.serves-card",
                State.WARN if _DRIVEN & set(gpu.sources) else State.FAIL,
                f"{answer.sentence} (inferred from {_first_cuda(gpu.capability)})",
                fix=answer.changes[0].text,
            )
        elif not _DRIVEN & set(gpu.sources) and (listed := driver_card.unlisted(driver, name, [gpu.pci_id])):
            yield say(
                "driver.serves-card",
                State.WARN,
                f"{listed}, and nothing here has seen it drive the card",
                fix="install the newest driver",
            )
        else:
            until = f", which R{last} is the last to serve" if last is not None else ""
            yield say("driver.serves-card", State.PASS, f"driver {version} serves {name}{until}")


@judge("driver.agrees")
def driver_agrees(machine: Machine) -> Iterator[Finding]:
    driver = machine.driver
    mismatch = next(
        (u.reason for u in machine.unread if u.probe == "graphics" and "mismatch" in u.reason.lower()), None
    )
    if mismatch:
        yield say("driver.agrees", State.FAIL, mismatch)
    elif driver and driver.clashes:
        yield say("driver.agrees", State.FAIL, f"driver {driver.version}, but {listed(driver.clashes)}")
    elif driver and len(driver.sources) > 1:
        yield say("driver.agrees", State.PASS, f"{listed(driver.sources)} agree")


@judge("driver.cuda")
def cuda_that_runs(machine: Machine) -> Iterator[Finding]:
    driver = machine.driven_by
    if driver is None or machine.driver is None:
        return
    full, native = driver_cuda.newest_full(driver), driver_cuda.newest_native(driver)
    since = torch_releases()[0].minor
    if full is None or full < oldest_cuda():
        oldest = driver_cuda.runs(driver, oldest_cuda())
        why = oldest.sentence if isinstance(oldest, Clash) else "it runs no CUDA of the data fully"
        found = f"driver {driver} is too old for any torch since {since}: {why}"
        yield say("driver.cuda", State.FAIL, found, fix="install the newest driver that serves the card")
        return
    highest = machine.driver.cuda or full
    found = f"runs CUDA up to {highest} fully"
    if native and native.major == highest.major and native > highest:
        found += f", and native code of CUDA up to {native} by minor-version compatibility (no PTX)"
    if driver_cuda.is_newer_than_tables(driver.version):
        found += "; this driver is newer than Rekindle's data"
    yield say("driver.cuda", State.PASS, found)


@judge("driver.is-not-toolkit")
def not_the_toolkit(machine: Machine) -> Iterator[Finding]:
    cuda = machine.driver.cuda if machine.driver else None
    if cuda is None:
        return
    winner = machine.toolkit
    if winner is None or winner.version is None:
        found = f"nvidia-smi says CUDA {cuda}: that is what the driver can run; no toolkit is on PATH"
        yield say("driver.is-not-toolkit", State.PASS, found)
    elif winner.version.major_minor == cuda:
        yield say("driver.is-not-toolkit", State.PASS, f"the driver's CUDA and nvcc are both {cuda}")
    else:
        found = f"nvidia-smi says CUDA {cuda} (what the driver can run); nvcc is {winner.version} (what compiles)"
        yield say("driver.is-not-toolkit", State.PASS, found)


def driver_commands(machine: Machine, branch: int | None) -> tuple[Command, ...]:
    """How this system installs the branch that its cards end with, and keeps it from being replaced."""
    windows = [driver_card.window(card, machine.driver_system) for card in machine.capabilities]
    wanted = branch or driver_card.common(windows).last
    if wanted is None:
        return ()
    where = "windows" if machine.os == "windows" else machine.surroundings.distribution
    found = drivers.packages(wanted, machine.os, where) if where else ()
    return tuple(map(Command.parse, (*found[0].install, *found[0].hold))) if found else ()


def describe(gpu: FoundGpu) -> str:
    parts = [str(gpu.capability) if gpu.capability else "capability unknown"]
    if gpu.memory:
        parts.append(f"{gpu.memory / 1024**3:.0f} GB")
    if gpu.driver_model:
        parts.append(gpu.driver_model)
    return f"{gpu.name or gpu.pci_id or 'an NVIDIA card'} ({', '.join(parts)})"


def _window(machine: Machine, gpu: FoundGpu) -> Window:
    """The drivers for a card."""
    assert gpu.capability is not None
    return driver_card.window(gpu.capability, machine.driver_system)


def _first_cuda(capability: Capability) -> str:
    first = toolkits.first_toolkit_for(capability)
    return f"CUDA {first.version}, the first that compiles for {capability}" if first else "the toolkits"


def _source(gpu: FoundGpu) -> str:
    return {"pci": "its PCI id", "name": "its name", "cuda": "the CUDA driver", "nvml": "NVML"}.get(
        gpu.capability_from or "", gpu.capability_from or "nobody"
    )
