"""What the steps of a build script do beyond calling programs. Follows `alone` in the script; needs Python alone."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rekindle.build.configure.cmake_result import configured_in
from rekindle.build.script.standalone import (
    PLAN,
    begin,
    ended,
    failed,
    line_of,
    names,
    place,
    read,
    run,
    say,
    start,
    stop,
    until,
    write,
)
from rekindle.build.script.standalone_folder import own_folder
from rekindle.build.script.standalone_libraries import (
    anywhere,
    beside_python,
    cudnn_of,
    elsewhere,
    expanded,
    libraries,
    version_of,
)
from rekindle.core.disk import dev_drive, size_of
from rekindle.source.edits import Found, make


def main(words: Sequence[str]) -> int:
    commands: dict[str, Callable[..., int]] = {
        "folder": own_folder, "start": start, "begin": begin, "failed": failed, "run": run, "compile": compile_all,
        "preflight": preflight,
        "commit": commit, "copy": copy, "freeze": freeze, "patch": patch, "environment": environment,
        "smoke-file": smoke_file, "smoke-run": smoke_run, "fresh": fresh, "check": check, "empty": empty,
        "collect": collect, "pack": pack, "install": install, "tryout": tryout, "finish": finish,
        "libraries": libraries, "wheel-libraries": wheel_libraries,
    }  # fmt: skip
    return commands[words[0]](*words[1:])


def preflight() -> int:
    """Everything that is missing at once, and only what the steps up to --until need."""
    last = names().index(until() or names()[-1])
    wrong: list[str] = []
    for need in PLAN["needs"]:
        if names().index(need["step"]) > last:
            continue
        if need.get("dll"):
            if not anywhere(need["dll"], [str(expanded(each)) for each in need["places"]]):
                wrong += [f"MISSING  {need['what']}", f"         {need['fix']}"]
            continue
        path = beside_python(need["program"]) if need["program"] else str(expanded(need["path"]))
        if not path or not Path(path).exists():
            wrong += [f"MISSING  {need['what']}: `{path or need['program']}`", f"         {need['fix']}"]
            wrong += [f"         there is one in `{other}`" for other in elsewhere(need)]
            continue
        faults = (
            cudnn_of(str(Path(path).parent.parent), need["cudnn"], PLAN["cudnn_parts"]) if need.get("cudnn") else []
        )
        if faults:
            wrong += [*(f"WRONG    {need['what']}: {fault}" for fault in faults), f"         {need['fix']}"]
            continue
        found = version_of(path, need["version"]) if need["version"] else ""
        if found != need["version"]:
            wrong += [f"WRONG    {need['what']}: `{path}` says {found or 'nothing'}", f"         {need['fix']}"]
        else:
            say(f"found    {need['what']}: {path}")
    wrong += unfit(str(place()))
    if dev_drive(str(place())) is False:
        say(f"drive    {place().anchor} is not a Dev Drive, which builds faster on Windows 11 (RK_WORK)")
    wrong += cramped(shutil.disk_usage(place()).free // 1024**3, memory() // 1024**3)
    if wrong and os.environ.get("RK_FORCE"):
        for line in (*wrong, "RK_FORCE is set: going on"):
            say(line)
        return 0
    return stop(*wrong) if wrong else 0


def cramped(free: int, memory: int) -> list[str]:
    """Too little disk or memory, in GiB. What an earlier run has built already counts as room."""
    found = []
    if free < PLAN["disk"] and free + size_of(place()) // 1024**3 < PLAN["disk"]:
        found.append(
            f"WRONG    disk: {free} GiB are free in `{place()}`; the build takes about {PLAN['disk']} (RK_WORK)"
        )
    if PLAN["memory"] and memory and memory < PLAN["memory"]:
        found.append(f"WRONG    memory: {memory} GiB; the heaviest files take {PLAN['memory']} each: add a page file")
    return found


def memory() -> int:
    """Bytes of main memory and page file; 0 where the system does not say."""
    asked: Any = getattr(os, "sysconf", None)
    if asked:
        try:
            return int(asked("SC_PAGE_SIZE") * asked("SC_PHYS_PAGES"))
        except (ValueError, OSError):
            return 0
    import ctypes

    # MEMORYSTATUSEX: its own length and a percentage, then seven numbers; the third is the limit with the page file.
    status = (ctypes.c_uint64 * 8)(64)
    kernel: Any = getattr(ctypes, "windll").kernel32  # noqa: B009 - no such thing elsewhere
    return int(status[3]) if kernel.GlobalMemoryStatusEx(ctypes.byref(status)) else 0


def compile_all(*words: str) -> int:
    """As many at a time as the memory of this computer holds; half as many after a compiler that ran out of it."""
    if "-j" not in words:
        return run(*words)
    at = words.index("-j") + 1
    jobs = asked = int(words[at])
    if PLAN["per_job"] and memory() and not os.environ.get("RK_FORCE"):
        jobs = max(1, min(asked, memory() // PLAN["per_job"]))
    if jobs < asked:
        say(f"{jobs} files at a time, not {asked}: the memory holds no more ({memory() // 1024**3} GiB)")
    while True:
        before = len(read(place("logs", "compile.log")))
        code = run(*words[:at], str(jobs), *words[at + 1 :])
        if code in (0, 130) or jobs == 1 or not STARVED.search(read(place("logs", "compile.log"))[before:]):
            return code
        jobs //= 2
        say(f"a compiler ran out of memory: going on with {jobs} files at a time")


# What MSVC, GCC, Clang and nvcc say, and a system that ends the largest process.
STARVED = re.compile(
    r"C1060|C1002|C3859|out of (?:memory|heap)|bad_alloc|memory exhausted|\bkilled\b|cannot allocate memory",
    re.IGNORECASE,
)


def unfit(work: str) -> list[str]:
    found = []
    python = ".".join(map(str, sys.version_info[:2]))
    if PLAN["python"] and python != PLAN["python"]:
        found.append(f"WRONG    Python: this is {python}, the plan says {PLAN['python']} (RK_PYTHON)")
    if PLAN["nvcc"] and (" " in work or not work.isascii()):
        found.append(f"WRONG    RK_WORK `{work}`: nvcc breaks on spaces and on letters outside ASCII")
    if PLAN["nvcc"] and os.name == "nt" and len(work) > 60:
        found.append(f"WRONG    RK_WORK has {len(work)} characters: Windows counts those of every path below it")
    return found


def commit() -> int:
    """The tree is the release itself, and not something else of the same name."""
    args = ["git", "-C", os.environ["RK_SOURCE"], "rev-parse", "HEAD"]
    found = subprocess.run(args, stdout=subprocess.PIPE, check=False).stdout.decode().strip()
    if PLAN["commit"] and found != PLAN["commit"]:
        return stop(f"the source is at commit {found}, not {PLAN['commit']}")
    say(f"the source is at commit {found}")
    return 0


def copy(source: str, into: str) -> int:
    """The build writes into its source, so it gets a copy. What git and earlier builds keep there stays behind."""
    if not Path(source).is_dir():
        return stop(f"there is no folder `{source}` with the source")

    def left(folder: str, inside: list[str]) -> list[str]:
        top = Path(folder).resolve() == Path(source).resolve()
        return [name for name in inside if name in (".git", "__pycache__") or (top and name in ("build", "dist"))]

    empty(into)
    Path(into).rmdir()
    shutil.copytree(source, into, symlinks=True, ignore=left)
    return 0


def freeze() -> int:
    """The exact versions that pip took, so that the same environment can be made again."""
    args = [sys.executable, "-m", "pip", "freeze", "--all"]
    said = subprocess.run(args, stdout=subprocess.PIPE, check=False).stdout.decode("utf-8", "replace")
    write(place("requirements.txt"), said.replace("\r\n", "\n"))
    say(f"what was installed is written down in {place('requirements.txt')}")
    return 0


SAID = {Found.PENDING: "", Found.APPLIED: " has it already", Found.FIXED: " has upstream's own fix"}


def patch(root: str) -> int:
    """All edits or none: every text is looked for before a file is written."""
    drafts: dict[Path, bytes] = {}
    for each in PLAN["patches"]:
        for edit in each["edits"]:
            path = Path(root, *edit["file"].split("/"))
            try:
                data = drafts[path] if path in drafts else path.read_bytes()
            except OSError as error:
                return stop(f"{each['id']}: `{path}` cannot be read: {error}")
            texts = {key: "\n".join(edit[key]) for key in ("before", "after")}
            spelled: Any = SimpleNamespace(**{**edit, **texts})
            outcome = make(data, spelled)
            if outcome.found is Found.MISMATCH:
                lines = (f"{each['id']}: `{path}`: {outcome.reason}", "nothing was changed")
                return stop(*lines, "is this the release that the script is for?")
            say(f"{each['id']}: {edit['file']}" + SAID[outcome.found])
            if outcome.found is Found.PENDING:
                drafts[path] = outcome.data
    for path, data in drafts.items():
        beside = path.with_name(path.name + ".part")
        beside.write_bytes(data)
        beside.replace(path)
    return 0


def environment() -> int:
    """The first of each program on PATH is the plan's."""
    wrong = []
    for need in PLAN["first"]:
        found, wanted = shutil.which(need["program"]), expanded(need["path"])
        same = found and os.path.normcase(Path(found).resolve()) == os.path.normcase(wanted.resolve())
        # A distribution may have the same compiler under two names.
        if found and (same or (need["version"] and version_of(found, need["version"]) == need["version"])):
            say(f"first on PATH: {found}")
        else:
            wrong.append(f"`{need['program']}` on PATH is {found or 'missing'}, not `{wanted}`: {need['why']}")
    return stop(*wrong) if wrong else 0


def smoke_file(path: str) -> int:
    write(Path(path), "\n".join(PLAN["smoke"]) + "\n")
    return 0


def smoke_run(program: str) -> int:
    said = subprocess.run([program], stdout=subprocess.PIPE, check=False)
    if said.returncode == 0:
        say("a small CUDA program was compiled and runs on the card")
    elif said.returncode == 3:
        say("UNVERIFIED: a small CUDA program was compiled; no card here can be used to run it")
    else:
        return stop(f"it does not run on the card: {said.stdout.decode().strip() or said.returncode}")
    return 0


def fresh(build: str) -> int:
    """A configure run that was cut off may have kept a wrong answer. Objects stay; Ninja knows which are whole."""
    Path(build).mkdir(parents=True, exist_ok=True)
    if Path(build, "CMakeCache.txt").exists():
        Path(build, "CMakeCache.txt").unlink()
    return 0


def check(build: str) -> int:
    """Built fine, but no CUDA inside: that is caught here, in the first minutes."""
    result = configured_in(Path(build))
    if not result.cache:
        return stop(f"CMake has left no cache in `{build}`")
    wrong = []
    for name, wanted in PLAN["expected"].items():
        said = result.cache.get(name, wanted)
        if (said.upper() in ("ON", "1", "TRUE", "YES")) != (wanted == "ON"):
            wrong.append(f"CMake has {name}={said}, the plan says {wanted}: configure.log says why")
    if PLAN["architectures"] and not any(result.gpu_flags):
        wrong.append("no file is compiled for a GPU: CUDA is off")
    for name in PLAN["architectures"]:
        without = [flags for flags in result.gpu_flags if name not in flags]
        if without:
            wrong.append(f"{len(without)} of {len(result.gpu_flags)} sets of GPU flags do not name {name}")
    if result.one_core:
        wrong.append(f"MKL would run on one core: CMake took {result.one_core}, for it found no OpenMP of Intel's "
                     "(INTEL_OMP_DIR)")  # fmt: skip
    cuda = ".".join(result.compilers.get("CMAKE_CUDA_COMPILER_VERSION", "").split(".")[:2])
    if PLAN["cuda"] and cuda and cuda != PLAN["cuda"]:
        wrong.append(f"the CUDA compiler is {cuda}, not {PLAN['cuda']}")
    if wrong:
        return stop(*wrong)
    say(f"CMake has configured what the plan says ({', '.join(PLAN['architectures']) or 'no GPU code'})")
    return 0


def empty(folder: str) -> int:
    shutil.rmtree(folder, ignore_errors=True)
    Path(folder).mkdir(parents=True, exist_ok=True)
    return 0


def only_wheel(folder: Path) -> Path | None:
    found = sorted(folder.glob("*.whl"))
    return found[0] if len(found) == 1 else None


def collect(folder: str) -> int:
    made = only_wheel(Path(folder))
    if made is None:
        return stop(f"packing has not left exactly one wheel in `{folder}`")
    empty(str(place("wheels")))
    made.replace(place("wheels", made.name))
    return 0


def pack(tree: str) -> int:
    """The install tree of a CMake project as a wheel."""
    empty(str(place("wheels")))
    wheel_of_tree(
        Path(tree), name=PLAN["name"], version=PLAN["version"], into=place("wheels"), generator="build script"
    )
    return 0


def wheel_libraries(*places: str) -> int:
    """As `libraries`, for a wheel that its build system has packed already: what is brought is added to it."""
    made = only_wheel(place("wheels"))
    if made is None:
        return stop("there is no wheel")
    top = place("dlls")
    empty(str(top))
    with zipfile.ZipFile(made) as archive:
        inside = [name for name in archive.namelist() if re.fullmatch(r"torch/(lib/[^/]+\.dll|[^/]+\.pyd)", name)]
        for name in inside:
            archive.extract(name, str(top))
    folder = top / "torch" / "lib"
    folder.mkdir(parents=True, exist_ok=True)
    code = libraries(str(folder), *places)
    if code:
        return code
    fresh = [path for path in sorted(folder.glob("*.dll")) if f"torch/lib/{path.name}" not in inside]
    if fresh:
        add_to_wheel(made, fresh)
    shutil.rmtree(str(top), ignore_errors=True)
    return 0


def add_to_wheel(wheel: Path, files: Sequence[Path]) -> None:
    """Written at the wheel's end, where its RECORD was; the other members are not packed again. All or nothing."""
    beside = wheel.with_name("part")
    shutil.copyfile(str(wheel), str(beside))
    with zipfile.ZipFile(str(beside), "a", zipfile.ZIP_DEFLATED) as archive:
        info = next(each for each in archive.infolist() if each.filename.endswith(".dist-info/RECORD"))
        record = [archive.read(info).decode("utf-8")]
        if info is archive.infolist()[-1]:
            archive.start_dir = info.header_offset
        archive.filelist.remove(info)
        del archive.NameToInfo[info.filename]
        for path in files:
            add_member(archive, record, f"torch/lib/{path.name}", path.read_bytes())
        archive.writestr(info.filename, "".join(record))
    beside.replace(wheel)


def install() -> int:
    """The wheel into the environment of this interpreter."""
    return run(sys.executable, "-m", "pip", "install", "--disable-pip-version-check", str(only_wheel(place("wheels"))))


def tryout() -> int:
    """In a process that sees nothing of the build: what the wheel says and computes is held against the plan."""
    names = {name.upper() for name in PLAN["sets"]} - {"TEMP", "TMP", "TMPDIR"}
    clean = {name: value for name, value in os.environ.items() if name.upper() not in names}
    clean["PATH"] = os.environ.get("RK_PATH", os.environ.get("PATH", ""))
    clean["PYTHONUTF8"] = "1"
    done = subprocess.run(
        [sys.executable, "-I", "-X", "utf8", "-c", TRYOUT],
        env=clean,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    flags = next((line[7:].split() for line in lines if line.startswith("flags: ")), [])
    for line in lines:
        say(line)
    gone = blame(lines)
    if done.returncode or gone:
        # One that is loaded late would be missed by a run this short.
        why = f"does not work in a new prompt (exit code {done.returncode})" if done.returncode else "is not complete"
        return stop(f"the wheel {why}", *gone)
    lost = [name for name in PLAN["architectures"] if name not in flags]
    return stop(f"the wheel has no code for {', '.join(lost)}") if lost else 0


def blame(lines: list[str]) -> list[str]:
    """Which DLL of the list is gone; Windows itself names the file that wanted it."""
    listed = read(place("libraries.txt")).split()
    folder = next((Path(line[8:]) for line in lines if line.startswith("folder: ")), None)
    gone = [name for name in listed if folder is not None and not (folder / name).is_file()]
    return [f"it lacks {', '.join(gone)}: do the steps from `libraries` on again"] if gone else []


TRYOUT = """
import importlib.util, pathlib
where = importlib.util.find_spec("torch")
print("folder:", pathlib.Path(where.origin).parent / "lib")
import torch
flags = torch._C._cuda_getArchFlags() if torch.version.cuda else ""
print(f"torch {torch.__version__}, CUDA {torch.version.cuda}")
print("flags:", flags or "none")
def tried(device):
    torch.manual_seed(0)
    a, b = torch.rand(64, 48), torch.rand(48, 32)
    near = (a.to(device) @ b.to(device)).cpu().double() - a.double() @ b.double()
    assert near.abs().max() < 1e-3, "a matrix product is wrong"
    x, w = torch.rand(1, 2, 9, 9), torch.rand(3, 2, 3, 3)
    got = torch.nn.functional.conv2d(x.to(device), w.to(device)).cpu().double()
    want = torch.nn.functional.unfold(x.double(), 3).transpose(1, 2) @ w.double().reshape(3, -1).T
    assert (got.reshape(3, -1).T - want[0]).abs().max() < 1e-3, "a convolution is wrong"
tried("cpu")
print("CPU: a matrix product and a convolution are right")
if torch.version.cuda and torch.cuda.is_available():
    tried("cuda")
    print(f"{torch.cuda.get_device_name(0)}: a matrix product and a convolution are right")
elif torch.version.cuda:
    print("UNVERIFIED: no card here can be used; nothing was computed on a GPU")
"""


def finish() -> int:
    ended()
    wheel = only_wheel(place("wheels"))
    if wheel is None:
        return stop("there is no wheel")
    say(f"the wheel: {wheel}")
    if PLAN["repair"]:
        words = [str(expanded(word)) if word.startswith("RK_") else word for word in PLAN["repair"]]
        say("To check every part of it, and for computers that have only the driver, where Rekindle is installed:")
        say("  " + line_of("rekindle", "repair", str(wheel), *words))
        say("  " + line_of("rekindle", "verify", str(Path("repaired", wheel.name))))
    spent = [path for path in map(place, ("s", "b", "env", "try", "t", "i", "p", "smoke")) if path.is_dir()]
    size = sum(size_of(path) for path in spent)
    if size > 1 << 30:
        say(f"The wheel needs nothing else here. To free {size / 1e9:.0f} GB, delete in {place()}:")
        say("  " + ", ".join(path.name for path in spent))
    return 0


_TIME = (1980, 1, 1, 0, 0, 0)


def wheel_of_tree(tree: Path, *, name: str, version: str, into: Path, generator: str) -> Path:
    """Everything under `tree` as the wheel `name`; it appears under its name only when it is complete."""
    plain = re.sub(r"[-_.]+", "_", name)
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    tag = f"py3-none-{platform}"
    info = f"{plain}-{version}.dist-info"
    record: list[str] = []
    path = into / f"{plain}-{version}-{tag}.whl"
    beside = into / "part"
    into.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(str(beside), "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for file in sorted(each for each in tree.rglob("*") if each.is_file()):
            add_member(
                archive, record, file.relative_to(tree).as_posix(), file.read_bytes(), file.stat().st_mode & 0o777
            )
        head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        add_member(archive, record, f"{info}/METADATA", head.encode())
        body = f"Wheel-Version: 1.0\nGenerator: {generator}\nRoot-Is-Purelib: false\nTag: {tag}\n"
        add_member(archive, record, f"{info}/WHEEL", body.encode())
        add_member(archive, [], f"{info}/RECORD", "".join([*record, f"{info}/RECORD,,\n"]).encode())
    beside.replace(path)
    return path


def add_member(archive: zipfile.ZipFile, record: list[str], name: str, data: bytes, mode: int = 0o644) -> None:
    member = zipfile.ZipInfo(name, _TIME)
    member.external_attr = (0o100000 | mode) << 16
    member.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(member, data)
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    name = f'"{name}"' if "," in name else name
    record.append(f"{name},sha256={digest},{len(data)}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
