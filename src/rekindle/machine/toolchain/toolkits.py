"""Every CUDA toolkit on the machine, wherever it came from, the one that wins on PATH first.

nvcc asks its profile for PATH and calls `ptxas` by bare name. Where that profile does not put its own folder first (as
Debian's), another toolkit's ptxas that lies earlier on PATH is what runs: a dry run tells which.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable

import msgspec

from rekindle.core.paths import STATE_FOLDER, toolchain_folder
from rekindle.core.pattern import late
from rekindle.core.version import Version
from rekindle.machine.host import CouldNotRead, Run, each
from rekindle.machine.system import windows
from rekindle.machine.toolchain import msvc
from rekindle.model.card import Target
from rekindle.model.toolkit import CalledTool, FoundToolkit

PRIVATE = "rekindle"
"""What `found_by` says of them."""


def private_roots(run: Run, tool: str) -> list[str]:
    """The folders of this tool's kits, the newest version first. Kits for another kind of computer are left out."""
    home = run.told("toolchain folder", lambda: str(toolchain_folder()), str)
    if not home:
        return []
    folder = run.join(home, "kits")
    pattern = re.compile(rf"{re.escape(tool)}-(\d{{1,9}}(?:\.\d{{1,9}}){{0,7}})(?:-cu\d{{1,9}})?(?:-full)?")
    names = run.names(folder, pattern)
    numbers = {
        name: [int(part) for part in match[1].split(".")] for name in names if (match := pattern.fullmatch(name))
    }
    ordered = sorted(numbers, key=lambda name: numbers[name], reverse=True)
    return [_root(run, run.join(folder, name)) for name in ordered]


def _root(run: Run, kit: str) -> str:
    """The kit's own folder, or that of somebody else which it stands for."""
    adopted = run.join(kit, STATE_FOLDER, "adopted")
    return (run.text(adopted) or "").strip() or kit if run.exists(adopted) else kit


_VARIABLES = ("CUDA_PATH", "CUDA_HOME", "CUDA_ROOT", "CUDACXX", "CUDA_TOOLKIT_ROOT_DIR")
_GUIDES = "HKLM\\SOFTWARE\\NVIDIA Corporation\\GPU Computing Toolkit\\CUDA"
_UNIX_FOLDER = late(r"cuda(-[\d.]+)?")
_PIP_FOLDER = late(r"cu\d+|cuda_nvcc")
_WINDOWS_FOLDER = late(r"v\d+\.\d+", re.IGNORECASE)
# What a build of PyTorch needs from a toolkit: programs, then headers that stand for their libraries.
_PROGRAMS = ("ptxas", "fatbinary", "cudafe++", "nvlink")
HEADERS = {
    "cuda_runtime.h": "the runtime's headers",
    "cublas_v2.h": "cuBLAS",
    "cufft.h": "cuFFT",
    "curand.h": "cuRAND",
    "cusolverDn.h": "cuSOLVER",
    "cusparse.h": "cuSPARSE",
    "nvrtc.h": "NVRTC",
}


def probe(run: Run) -> tuple[FoundToolkit, ...]:
    """Asks every nvcc that can be found. Two names for one toolkit (a link, a wrapper) are one toolkit."""
    found: dict[str, FoundToolkit] = {}
    places = candidates(run)
    asked = each(lambda place: _ask(run, place, places[place]), places)
    for toolkit in asked:
        if toolkit is None:
            continue
        key = run.paths.normcase(toolkit.root)
        ways = (*(found[key].found_by if key in found else ()), *toolkit.found_by)
        found[key] = msgspec.structs.replace(found.get(key, toolkit), found_by=tuple(dict.fromkeys(ways)))
    first = next((place for place, how in places.items() if "PATH" in how), None)
    ordered = sorted(found.values(), key=lambda toolkit: "PATH" not in toolkit.found_by)
    return tuple(ordered) if first else tuple(found.values())


def at(run: Run, root: str, how: str) -> FoundToolkit | None:
    """The toolkit in this folder, if its nvcc can be started."""
    program = run.join(root, "bin", f"nvcc{'.exe' if run.windows else ''}")
    return _ask(run, program, [how]) if run.exists(program) else None


def in_packages(run: Run, site_packages: tuple[str, ...]) -> tuple[FoundToolkit, ...]:
    """Toolkits that pip put among the packages (`nvidia/cu13`), which are on nobody's PATH."""
    ending = ".exe" if run.windows else ""
    places = [
        program
        for folder in site_packages
        for name in run.names(run.join(folder, "nvidia"), _PIP_FOLDER)
        if run.exists(program := run.join(folder, "nvidia", name, "bin", f"nvcc{ending}"))
    ]
    return tuple(toolkit for toolkit in each(lambda place: _ask(run, place, ["pip"]), places) if toolkit)


def merged(first: tuple[FoundToolkit, ...], more: tuple[FoundToolkit, ...]) -> tuple[FoundToolkit, ...]:
    """Without those that were found already."""
    known = {toolkit.root for toolkit in first}
    return (*first, *(toolkit for toolkit in more if toolkit.root not in known))


def candidates(run: Run) -> dict[str, list[str]]:
    """nvcc files (or toolkit folders without one) → how each was found. PATH's winner comes first."""
    ending = ".exe" if run.windows else ""
    places: dict[str, list[str]] = {}
    known: dict[str, str] = {}

    def add(program: str, how: str) -> None:
        # `/bin` is `/usr/bin` and `/usr/local/cuda` a link: one nvcc by several names is asked once.
        name = known.setdefault(run.paths.normcase(_behind(run, program)), program)
        places.setdefault(name, []).append(how)

    for number, hit in enumerate(run.which("nvcc")):
        add(hit, "PATH" if number == 0 else "PATH (later)")
    for root, how in roots(run):
        program = run.join(root, "bin", f"nvcc{ending}")
        if run.exists(program):
            add(program, how)
    return places


def _behind(run: Run, program: str) -> str:
    """The file behind links, and behind a script of one line that only passes on to it, as distributions write them."""
    real = run.real(program)
    if run.windows or not run.small(real):
        return real
    passes = re.search(r'^exec "?(/[^\s"$]+)"? "\$@"\s*$', run.text(real) or "", re.MULTILINE)
    return run.real(passes[1]) if passes else real


def roots(run: Run) -> list[tuple[str, str]]:
    """Folders where toolkits are, with how we know them. No program is started for this."""
    found: list[tuple[str, str]] = []
    for name, value in sorted(run.environment.items()):
        if name.upper() in _VARIABLES or re.fullmatch(r"CUDA_PATH_V\d+_\d+", name, re.IGNORECASE):
            value = value.strip().strip('"')
            found.append((run.parent(run.parent(value)) if name.upper() == "CUDACXX" else value, name.upper()))
    if run.windows:
        found += _windows_roots(run)
    else:
        for base in ("/usr/local", "/opt"):
            found += [(run.join(base, name), base) for name in run.names(base, _UNIX_FOLDER)]
        found += [("/usr/lib/nvidia-cuda-toolkit", "distro"), ("/usr/lib/cuda", "distro"), ("/usr", "distro")]
    conda = run.env("CONDA_PREFIX")
    if conda:
        found.append((run.join(conda, "Library") if run.windows else conda, "conda"))
    found += [(root, PRIVATE) for root in private_roots(run, "cuda")]
    return [(root, how) for root, how in found if root]


def _windows_roots(run: Run) -> list[tuple[str, str]]:
    files = run.env("ProgramW6432") or run.env("ProgramFiles") or "C:\\Program Files"
    base = run.join(files, "NVIDIA GPU Computing Toolkit", "CUDA")
    found = [(run.join(base, name), "program files") for name in run.names(base, _WINDOWS_FOLDER)]
    for name in (run.registry(_GUIDES) or {}).get("", ()):
        value = (run.registry(f"{_GUIDES}\\{name}") or {}).get("InstallDir")
        if isinstance(value, str) and value:
            found.append((value.rstrip("\\"), "registry"))
    return found


def _ask(run: Run, program: str, found_by: list[str]) -> FoundToolkit | None:
    troubles: list[str] = []
    targets: tuple[Target, ...] = ()
    try:
        dry = _dry_run(run, program, troubles)
    except _Hangs as hangs:
        # One that hangs once is not asked again: its own answer is lost, not everybody's time.
        root = run.parent(run.parent(run.real(program)))
        return FoundToolkit(root=root, nvcc=program, found_by=tuple(found_by), trouble=str(hangs))
    version = dry.version if dry else None
    if version is None:
        said = run.command(program, "--version")
        if not said.started:
            return None
        try:
            version = parse_nvcc_version(said.out)
        except CouldNotRead as error:
            troubles.append(str(error))
    try:
        targets = parse_targets(run.command(program, "--list-gpu-code").out)
    except CouldNotRead as error:
        troubles.append(str(error))
    home = run.real(dry.here) if dry and dry.here else run.parent(run.real(program))
    root = run.parent(home) if run.paths.basename(home).lower() == "bin" else home
    ptxas = called(run, dry, "ptxas")
    return FoundToolkit(
        root=root,
        nvcc=program,
        version=version,
        targets=targets,
        found_by=tuple(found_by),
        ptxas=ptxas,
        right_ptxas=_right_ptxas(run, root, program, version, ptxas),
        cicc=called(run, dry, "cicc"),
        missing=missing(run, root, dry),
        visual_studio_integration=_integration(run, root),
        short_root=_short(run, root),
        trouble="; ".join(troubles) or None,
    )


class _Hangs(Exception):
    """An nvcc that does not answer."""


def _dry_run(run: Run, program: str, troubles: list[str]) -> DryRun | None:
    """Nothing is compiled: nvcc prints what it would start. An empty file is enough to make it say."""
    words = ("--dryrun", "-cubin", "-x", "cu", "NUL" if run.windows else "/dev/null")
    said = run.command(program, *words, apart=True)
    if said.timed_out:
        raise _Hangs(f"it timed out after {said.seconds:.0f} s")
    if run.windows and "'cl.exe'" in said.out + said.err:
        # An ordinary prompt has no `cl` on PATH, and nvcc says nothing without one: it is told where one is.
        installed = [toolset for found in msvc.studios(run) for toolset in found.toolsets if toolset.x64]
        if installed:
            compilers = run.join(installed[0].root, "bin", "Hostx64", "x64")
            said = run.command(program, "-ccbin", compilers, *words, apart=True)
    separator = ";" if run.windows else ":"
    try:
        return parse_dry_run(said.err + "\n" + said.out, separator=separator)
    except CouldNotRead as error:
        lines = (said.err.strip() or said.out.strip()).splitlines()
        trouble = f"{error} ({lines[-1].strip()[:120]})" if lines else str(error)
    # No dry run without a compiler, and none is installed: what its profile puts on PATH tells the same.
    here = run.parent(run.real(program))
    profile = run.text(run.join(here, "nvcc.profile"))
    try:
        return parse_profile(profile or "", here=here, path=run.env("PATH") or "", separator=separator)
    except CouldNotRead:
        troubles.append(trouble)
        return None


def called(run: Run, dry: DryRun | None, name: str) -> CalledTool | None:
    """The program of this name that nvcc calls."""
    if dry is None or name not in dry.called:
        return None
    ending = ".exe" if run.windows else ""
    path = resolve_program(dry.called[name], dry.search, join=run.join, exists=run.exists, ending=ending)
    if path is None:
        return None
    version: Version | None = None
    if name == "ptxas":  # cicc will not tell its version
        said = run.command(path, "--version")
        with contextlib.suppress(CouldNotRead):
            version = parse_nvcc_version(said.out + said.err)
    return CalledTool(path=run.normal(path), version=version)


def _right_ptxas(run: Run, root: str, program: str, version: Version | None, called: CalledTool | None) -> str | None:
    """When nvcc calls another toolkit's ptxas: where its own is, if anywhere."""
    if version is None or called is None or called.version is None or called.version.major_minor == version.major_minor:
        return None
    name = "ptxas.exe" if run.windows else "ptxas"
    places = [run.join(run.parent(program), name), run.join(root, "bin", name), *run.which("ptxas")]
    for place in dict.fromkeys(places):
        if place != called.path and run.exists(place):
            with contextlib.suppress(CouldNotRead):
                if parse_nvcc_version(run.command(place, "--version").out).major_minor == version.major_minor:
                    return place
    return None


def missing(run: Run, root: str, dry: DryRun | None) -> tuple[str, ...]:
    """Parts that a build needs and that are neither in the toolkit nor where its nvcc looks."""
    ending = ".exe" if run.windows else ""
    folders = [run.join(root, "bin"), *(dry.search if dry else ())]
    absent = [name for name in _PROGRAMS if not any(run.exists(run.join(folder, name + ending)) for folder in folders)]
    includes = [run.join(root, "include")]
    if run.windows:
        includes.append(run.join(root, "Library", "include"))
    else:
        includes += [run.join(root, "targets", name, "include") for name in run.names(run.join(root, "targets"))]
        includes += ["/usr/include"] if root.startswith("/usr/lib") else []
    absent += [
        label
        for header, label in HEADERS.items()
        if not any(run.exists(run.join(folder, header)) for folder in includes)
    ]
    return tuple(absent)


def _integration(run: Run, root: str) -> bool | None:
    if not run.windows:
        return None
    folder = run.join(root, "extras", "visual_studio_integration", "MSBuildExtensions")
    return bool(run.names(folder))


def _short(run: Run, root: str) -> str | None:
    if not run.windows or " " not in root:
        return None
    return run.told(f"short path of {root}", lambda: windows.short_path(root), str)


_NVCC_RELEASE = late(r"release (\d{1,4}\.\d{1,4}), V(\d{1,4}(?:\.\d{1,6}){1,3})(?!\d)")
_ASSIGNED = late(r"^#\$ ([A-Za-z_]\w*)=(.*)$", re.MULTILINE)
_CALLED = late(r'^#\$ "?((?:[^"\n]*[/\\])?(ptxas|cicc)(?:\.exe)?)"?(?=\s)', re.MULTILINE)

_LONGEST = 65536
_PROFILE = late(r"^[ \t]*([A-Za-z_]\w{0,60})[ \t]*(\+=|=\+|\?=|=)[ \t]*(.*)$", re.MULTILINE)


class DryRun(msgspec.Struct, frozen=True, kw_only=True):
    """`here` is the folder of the real nvcc behind whatever wrapper was called."""

    here: str | None
    search: tuple[str, ...]
    called: dict[str, str]
    """`ptxas` and `cicc` as nvcc calls them: a bare name or a path."""
    version: Version | None


def parse_nvcc_version(text: str) -> Version:
    """`Cuda compilation tools, release 11.8, V11.8.89` → 11.8.89."""
    match = _NVCC_RELEASE.search(text)
    if not match:
        raise CouldNotRead("this is not what `nvcc --version` prints")
    return Version(match[2])


def parse_targets(text: str) -> tuple[Target, ...]:
    """The lines of `nvcc --list-gpu-code`."""
    found = []
    for line in text.splitlines():
        word = line.strip()
        if word.startswith(("sm_", "compute_")):
            try:
                found.append(Target.parse(word))
            except ValueError as error:
                raise CouldNotRead(f"`{word[:40]}` is not a target") from error
    if not found:
        raise CouldNotRead("this is not what `nvcc --list-gpu-code` prints")
    return tuple(sorted(set(found)))


def parse_dry_run(text: str, *, separator: str) -> DryRun:
    """From `nvcc --dryrun`: its settings, and the last program of each kind that it would start."""
    settings: dict[str, str] = {}
    for name, value in _ASSIGNED.findall(text):
        settings[name] = value.strip()
    called: dict[str, str] = {}
    for path, name in _CALLED.findall(text):
        called[name] = re.sub(r"\$(\w+)", lambda match: settings.get(match[1], match[0]), path)
    if not settings or "ptxas" not in called:
        raise CouldNotRead("the dry run of nvcc names no ptxas")
    parts = [settings.get("PATH", "")]
    number = re.search(
        r"-D__CUDACC_VER_MAJOR__=(\d{1,4})\s+-D__CUDACC_VER_MINOR__=(\d{1,4})\s+-D__CUDACC_VER_BUILD__=(\d{1,6})", text
    )
    return DryRun(
        here=settings.get("_HERE_"),
        search=tuple(entry for entry in parts[0].split(separator) if entry),
        called=called,
        version=Version(".".join(number.groups())) if number else None,
    )


def parse_profile(text: str, *, here: str, path: str, separator: str) -> DryRun:
    """From `nvcc.profile`, when no dry run can be had: the PATH that nvcc makes for the programs it calls by bare name.

    In its language `+=` puts in front and `=+` behind.
    """
    settings = {"_HERE_": here, "PATH": path}
    found = False
    for name, operator, value in _PROFILE.findall(text):
        value = re.sub(r"\$\((\w+)\)", lambda match: settings.get(match[1], ""), value.strip())
        before = settings.get(name, "")
        joined = {"+=": value + before, "=+": before + value, "?=": before or value}.get(operator, value)
        settings[name] = joined[:_LONGEST]  # a profile that names itself over and over must not fill the memory
        found = True
    if not found:
        raise CouldNotRead("nvcc.profile sets nothing")
    cicc = f"{settings['CICC_PATH']}/cicc" if settings.get("CICC_PATH") else "cicc"
    search = tuple(entry.strip() for entry in settings["PATH"].split(separator) if entry.strip())
    return DryRun(here=here, search=search, called={"ptxas": "ptxas", "cicc": cicc}, version=None)


def resolve_program(
    called: str, search: tuple[str, ...], *, join: Callable[..., str], exists: Callable[[str], bool], ending: str
) -> str | None:
    """The file that a bare name or a path stands for, the way nvcc's shell would find it."""
    if "/" in called or "\\" in called:
        return called if exists(called) else called + ending if exists(called + ending) else None
    for folder in search:
        for name in dict.fromkeys((called + ending, called)):
            if exists(join(folder, name)):
                return join(folder, name)
    return None
