"""Is the package whole: RECORD against the files, headers that cannot be read, size by part."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from rekindle.core import untrusted
from rekindle.core.findings import Finding, Fix, State, failed, passed, unverified, warned
from rekindle.core.untrusted import printable
from rekindle.formats import package
from rekindle.formats.binary import Binary, is_binary
from rekindle.formats.package import Package
from rekindle.knowledge.cuda.libraries import is_vendor_library

# What RECORD itself does not list, or cannot know the hash of.
_GPU_WORDS = ("cuda", "cudnn", "cublas", "cufft", "cusparse", "cusolver", "curand", "nccl", "nvrtc", "nvshmem", "cupti")
# Where `site` looks: the top of the folder of packages, wherever in the wheel that is.
_SITE = re.compile(
    r"(?:[^/]+\.data/(?:purelib|platlib|data/(?:.*/)?(?:site|dist)-packages)/)?"
    r"(?:[^/]+\.pth|(?:sitecustomize|usercustomize)(?:/__init__)?\.(?:pyc?|so|pyd|[\w.-]+\.(?:so|pyd)))"
)
_OVERLAY = re.compile(r"[^/]+\.data/(?:purelib/|platlib/|data/(?:.*/)?(?:site|dist)-packages/)", re.IGNORECASE)
_IMPORTS = re.compile(rb"(?:\A|[\r\n])(?:\xef\xbb\xbf)?import[ \t]")  # a line may end as on an old Mac
UNLISTED = (".dist-info/RECORD", ".dist-info/RECORD.jws", ".dist-info/RECORD.p7s")


def record_findings(found: Package) -> list[Finding]:
    """RECORD against the files: every file listed, every line a file, every size right."""
    entries = package.record(found)
    if entries is None:
        if found.kind != "wheel":
            return []
        return [
            failed(
                "record",
                "the wheel has no RECORD",
                why="pip refuses to install it",
                fix="pack it again with `rekindle repair --pack`",
            )
        ]
    listed = {entry.path: entry for entry in entries}
    absent = sorted(path for path in listed if path not in found.files and not _outside(path, found))
    extra = sorted(path for path in found.files if path not in listed and not path.endswith(UNLISTED))
    sizes = sorted(
        path
        for path, entry in listed.items()
        if entry.size is not None and found.files.get(path, entry.size) != entry.size
    )
    if found.kind != "wheel":
        # An installation gains bytecode and loses nothing.
        extra = []
    problems = [
        text
        for text in (
            _some("listed but not there", absent),
            _some("there but not listed", extra),
            _some("of another size than stated", sizes),
        )
        if text
    ]
    if problems:
        return [
            Finding(
                id="record",
                state=State.FAIL if absent or sizes else State.WARN,
                found="RECORD does not match the files: " + "; ".join(problems),
                why="installers copy and uninstall by this list; a stale one means the wheel was changed by hand",
                fix=Fix(text="build the wheel again, or rewrite RECORD with `rekindle repair`"),
            )
        ]
    return [passed("record", f"RECORD lists all {len(found.files)} files with their sizes")]


def name_findings(found: Package) -> list[Finding]:
    """Names that cannot lie on a disk as they lie in the wheel: on Windows, or beside one another."""
    if found.kind != "wheel":
        return []
    over = _laid_over(found.files)
    problems = [text for name in found.files if (text := untrusted.impossible_on_windows(name))]
    problems += [
        f"`{printable(one)}` and `{printable(two)}` are one file" for one, two in (*untrusted.twins(found.files), *over)
    ]
    if not problems:
        return []
    linux = not over and all(
        "linux" in tag.rpartition("-")[2] for tag in package.headers(found, "WHEEL").get("Tag", ["any"])
    )
    return [
        Finding(
            id="names",
            state=State.WARN if linux else State.FAIL,
            found="; ".join(problems[:3]) + (f" (and {len(problems) - 3} more)" if len(problems) > 3 else ""),
            why="it installs only on Linux, on a disk that tells upper from lower case"
            if linux
            else f"{'' if over else 'on Windows '}an installer fails or overwrites one file with another",
            fix=Fix(text="rename the files and build the wheel again"),
        )
    ]


def _laid_over(names: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs that are one file when installed: an installer lays what is in a `.data` folder over the rest."""
    first: dict[str, str] = {}
    pairs = [(first.setdefault(_OVERLAY.sub("", name), name), name) for name in names]
    return [(one, two) for one, two in pairs if one != two]


def startup_findings(found: Package) -> list[Finding]:
    """What runs whenever Python starts in the environment that the wheel is installed in, imported or not."""
    if found.kind != "wheel":
        return []
    top = [name for name in found.files if _SITE.fullmatch(name)]
    runs = [name for name in top if not name.endswith(".pth") or _IMPORTS.search(found.read(name, limit=1 << 20))]
    if not runs:
        return []
    return [
        warned(
            "startup",
            f"{', '.join(f'`{printable(name)}`' for name in sorted(runs)[:3])}: code that runs whenever Python starts",
            why="no import is needed for it: whoever built the wheel can do there what you can",
            fix="read it before you install the wheel, or let `rekindle verify` run it; with `--no-run` nothing runs",
        )
    ]


def info_findings(found: Package) -> list[Finding]:
    """A wheel has one `.dist-info` folder; pip refuses one with two, and we would judge by the wrong one."""
    folders = {name.split("/", 1)[0] for name in found.files if name.split("/", 1)[0].endswith(".dist-info")}
    if found.kind != "wheel" or len(folders) < 2:
        return []
    named = ", ".join(f"`{printable(name)}`" for name in sorted(folders)[:3])
    return [
        failed(
            "metadata",
            f"the wheel has {len(folders)} `.dist-info` folders: {named}",
            why="pip refuses to install it",
            fix="build the wheel again",
        )
    ]


def header_findings(binaries: Iterable[Binary]) -> list[Finding]:
    """Files that call themselves libraries and cannot be read as such, and GPU code that is none or is cut short."""
    findings = [
        failed("header", found.problem, why="no loader will take this file", fix="download or build it again")
        for found in binaries
        if found.problem
    ]
    for found in binaries:
        broken = [entry for container in found.containers for entry in container.broken]
        if broken:
            named = ", ".join(dict.fromkeys(str(entry.target) for entry in broken))
            findings.append(
                failed(
                    "header",
                    f"`{found.name}`: what it calls code for {named} is neither a cubin nor PTX of that target "
                    f"({len(broken)} times, first at offset {broken[0].offset:#x})",
                    why="the driver loads none of it",
                    fix="download or build it again",
                )
            )
        cut = [container for container in found.containers if not container.whole]
        if cut:
            findings.append(
                warned(
                    "gpu-code",
                    f"`{found.name}`: {len(cut)} containers of GPU code do not end as they say, the first at "
                    f"offset {cut[0].offset:#x}",
                    why="their targets may be counted wrong",
                )
            )
    return findings


def cpu_findings(binaries: Sequence[Binary], level: str | None) -> list[Finding]:
    """What the code outside dispatch demands of the CPU: known only where the compiler left a note of it."""
    if not any(found.machine == "x86_64" for found in binaries):
        return []
    noted = any(found.elf and found.elf.isa for found in binaries)
    if level and not noted:
        text = f"its version says that an x86-64-{level} CPU is enough; the files themselves do not say"
        return [unverified("cpu", text)]
    if level:
        return [passed("cpu", f"its own note demands an x86-64-{level} CPU" + (" (AVX2)" if level == "v3" else ""))]
    return [
        unverified(
            "cpu",
            "which CPU the code outside run-time dispatch needs is not stated in the files",
            why="a wheel built with AVX2 and sold for SSE4.1 ends with an illegal instruction on an old CPU",
            fix="import it on the oldest CPU that it is meant for",
        )
    ]


def vendor_findings(files: Iterable[str]) -> list[Finding]:
    """NVIDIA's libraries have kernels of their own for each card: a fraction of containers is no measure of them."""
    names = [name for name in files if is_vendor_library(name.rpartition("/")[2])]
    return (
        [
            passed(
                "vendor-library",
                f"{', '.join(f'`{name}`' for name in names[:3])}{', …' if len(names) > 3 else ''}: NVIDIA's own, "
                "which picks kernels by card; PARTIAL there says only that it holds some code for the card",
            )
        ]
        if names
        else []
    )


def parts(files: Mapping[str, int]) -> dict[str, int]:
    """Bytes by part: libraries with and without CUDA in their name, Python, headers, the rest; largest first."""
    total: Counter[str] = Counter()
    for name, size in files.items():
        total[_part(name)] += size
    return dict(total.most_common())


def _part(name: str) -> str:
    low = name.lower()
    if is_binary(low):
        return "GPU libraries" if any(word in low for word in _GPU_WORDS) else "other libraries"
    if low.endswith((".py", ".pyi")):
        return "Python"
    if low.endswith((".h", ".hpp", ".cuh", ".inl")) or "/include/" in low:
        return "headers"
    return "other files"


def _outside(path: str, found: Package) -> bool:
    """Scripts and data of an installed package lie outside site-packages, and bytecode may have been removed."""
    return found.kind != "wheel" and (path.startswith("../") or path.endswith(".pyc"))


def _some(what: str, names: Sequence[str]) -> str:
    if not names:
        return ""
    shown = ", ".join(f"`{name}`" for name in names[:3])
    return f"{len(names)} {what} ({shown}{', …' if len(names) > 3 else ''})"
