"""Private toolchains from the real servers of apt and pip, as far as this machine reaches them.

Long: CUDA 11.8 of Debian is 1.3 GB, 12.4 is 1.7 GB, 13.0 of the Python index 1.4 GB. They are kept in the tests' cache.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rekindle.formats import cubin
from support.artefacts import cache, wheel
from support.pace import seconds
from support.windows_python import WindowsPython
from support.wine import windows_path

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(sys.platform != "linux", reason="UNVERIFIED: apt and nvcc for Linux are needed"),
]
PROJECT = Path(__file__).resolve().parent.parent.parent
NOBODY = 65534

PTX = ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry k() { ret; }\n"
RDC = {
    "half.cu": "__device__ float half_of(float x) { return x / 2; }\n",
    "all.cu": "extern __device__ float half_of(float);\n"
    '__global__ void halve(float* v) { v[0] = half_of(v[0]); }\nextern "C" void go(float* v) { halve<<<1, 1>>>(v); }\n',
}


def rekindle(*words: str, home: Path, path: str = "", user: bool = True) -> subprocess.CompletedProcess[str]:
    """The command as an ordinary user, with a PATH of its own."""
    environ = {
        "HOME": str(home),
        "PATH": path or "/usr/local/bin:/usr/bin:/bin",
        "REKINDLE_TOOLCHAIN": str(home / "t"),
        "PYTHONPATH": os.pathsep.join(
            [str(PROJECT / "src"), *(entry for entry in sys.path if "site-packages" in entry)]
        ),
        "PYTHONDONTWRITEBYTECODE": "1",
        "NO_COLOR": "1",
        "COLUMNS": "200",
    }
    python = next((found for found in ("/usr/bin/python3",) if _same_python(found)), sys.executable)
    drop = ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups"]
    # A cache below /root is closed to everybody else: then root has to do.
    reached = os.geteuid() == 0 and subprocess.run([*drop, "test", "-w", str(home)], check=False).returncode == 0
    ordinary = drop if user and reached and python != sys.executable else []
    return subprocess.run(
        [*ordinary, python, "-m", "rekindle", *words],
        env=environ, cwd=home, capture_output=True, text=True, timeout=5400, check=False,
    )  # fmt: skip


def _same_python(found: str) -> bool:
    said = subprocess.run([found, "-V"], capture_output=True, text=True, check=False)
    return said.stdout.split()[-1:] == [platform.python_version()] or said.stdout.startswith(
        f"Python {sys.version_info.major}.{sys.version_info.minor}."
    )


@pytest.fixture(scope="module")
def home() -> Path:
    folder = cache() / "toolchain-home"
    folder.mkdir(parents=True, exist_ok=True)
    if os.geteuid() == 0:
        shutil.chown(folder, NOBODY, NOBODY)
    return folder


def installed(home: Path, spec: str, *more: str) -> dict[str, str]:
    if shutil.which("apt-get") is None:
        pytest.skip("UNVERIFIED: there is no apt-get here")
    done = rekindle("toolchain", "install", spec, *more, "--accept-licence", "--json", home=home)
    if done.returncode in (5, 7):
        pytest.skip(f"UNVERIFIED: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)["kits"][0]
    return found


@pytest.mark.parametrize(
    ("spec", "card"),
    [("cuda==11.8", "sm_35"), ("cuda==12.4", "sm_61"), ("cuda==13.0", "sm_75"), ("cuda==13.0", "sm_120")],
)
def test_from_nothing_to_a_kernel_though_another_ptxas_is_first(
    home: Path, tmp_path: Path, spec: str, card: str
) -> None:
    installed(home, spec)
    rival = tmp_path / "rival"
    rival.mkdir()
    (rival / "ptxas").write_text("#!/bin/sh\necho 'another CUDA' >&2; exit 1\n", encoding="utf-8")
    (rival / "ptxas").chmod(0o755)
    tmp_path.chmod(0o755)
    done = rekindle("toolchain", "smoke", spec, "--gpu", card, home=home, path=f"{rival}:/usr/local/bin:/usr/bin:/bin")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"a kernel compiles for {card}" in done.stdout
    assert re.search(r"calls its own ptxas, \S+/kits/cuda-", done.stdout)
    assert "a call of cublas links" in done.stdout


@pytest.mark.skipif(shutil.which("strace") is None, reason="UNVERIFIED: there is no strace here")
def test_nothing_of_another_toolkit_is_opened(home: Path, tmp_path: Path) -> None:
    kit = installed(home, "cuda==11.8")["folder"]
    gcc = next(Path(kit).parent.glob("gcc-11*")) / "bin" / "g++-11"
    (tmp_path / "a.cu").write_text("__global__ void k(float* v) { v[0] = 1; }\n", encoding="utf-8")
    subprocess.run(
        ["strace", "-f", "-qq", "-e", "trace=openat,open,execve", "-o", "trace",
         f"{kit}/bin/nvcc", "-ccbin", str(gcc), "-arch=sm_35", "-Wno-deprecated-gpu-targets", "-c", "a.cu"],
        cwd=tmp_path, check=True, capture_output=True, timeout=900,
    )  # fmt: skip
    lines = (tmp_path / "trace").read_text(encoding="utf-8", errors="replace").splitlines()
    opened = {match[1] for line in lines if "ENOENT" not in line and (match := re.search(r'"(/[^"]+)"', line))}
    cuda = [path for path in opened if re.search(r"ptxas|cicc|nvcc|cudafe|fatbinary|libdevice|cuda_runtime|nvvm", path)]
    assert cuda and all(path.startswith((kit, "/tmp/tmpxft")) or str(tmp_path) in path for path in cuda)
    # Headers and the C library come out of the compiler's own sysroot, not from this system.
    assert not [path for path in opened if path.startswith(("/usr/include", "/usr/lib/gcc", "/usr/local/cuda"))]


def test_a_library_of_relocatable_device_code(home: Path, tmp_path: Path) -> None:
    kit = installed(home, "cuda==13.0")["folder"]
    for name, text in RDC.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    words = [
        f"{kit}/bin/nvcc",
        "-rdc=true",
        "-gencode=arch=compute_75,code=sm_75",
        "-gencode=arch=compute_120,code=sm_120",
    ]
    done = subprocess.run(
        [*words, "-Xcompiler", "-fPIC", "-shared", "-cudart", "shared", "half.cu", "all.cu", "-o", "librdc.so"],
        cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    seen = rekindle("inspect", str(tmp_path / "librdc.so"), home=home, user=False)
    assert "sm_75" in seen.stdout and "sm_120" in seen.stdout


def test_the_windows_set_holds_what_the_wheels_hold(home: Path) -> None:
    kit = Path(installed(home, "cuda==13.0", "--platform", "windows-x86_64")["folder"])
    assert (kit / "bin" / "nvcc.exe").is_file() and (kit / "bin" / "ptxas.exe").is_file()
    import zipfile

    with zipfile.ZipFile(wheel("nvidia-cuda-nvcc==13.0.88", platform="win_amd64")) as archive:
        assert (kit / "bin" / "ptxas.exe").read_bytes() == archive.read("nvidia/cu13/bin/ptxas.exe")


def test_the_windows_set_answers_as_windows(home: Path, tmp_path: Path, windows: WindowsPython) -> None:
    kit = Path(installed(home, "cuda==13.0", "--platform", "windows-x86_64")["folder"])
    said = windows.bench.call([windows_path(kit / "bin" / "nvcc.exe"), "--version"], timeout=seconds(300))
    assert said.returncode == 0 and b"release 13.0" in said.stdout
    (tmp_path / "a.ptx").write_text(PTX, encoding="utf-8")
    words = ["-arch=sm_75", windows_path(tmp_path / "a.ptx"), "-o", windows_path(tmp_path / "a.cubin")]
    said = windows.bench.call([windows_path(kit / "bin" / "ptxas.exe"), *words], timeout=seconds(300))
    assert said.returncode == 0, said.stderr
    assert [kernel.name for kernel in cubin.kernels((tmp_path / "a.cubin").read_bytes())] == ["k"]


def test_a_manifest_gives_the_same_files_elsewhere(home: Path, tmp_path: Path) -> None:
    installed(home, "gcc==11")
    written = home / "m.json"
    assert rekindle("toolchain", "manifest", "gcc==11", "-o", str(written), home=home).returncode == 0
    other = home / "elsewhere"
    shutil.rmtree(other, ignore_errors=True)
    other.mkdir()
    if os.geteuid() == 0:
        shutil.chown(other, NOBODY, NOBODY)
    done = rekindle("toolchain", "install", "--manifest", str(written), "--json", home=other)
    assert done.returncode == 0, done.stderr
    wanted = json.loads(written.read_text(encoding="utf-8"))["kits"][0]["digest"]
    assert json.loads(done.stdout)["kits"][0]["digest"] == wanted
    shutil.rmtree(other, ignore_errors=True)


def test_the_life_of_a_kit(home: Path) -> None:
    """Installed, listed, shown, verified, damaged, made anew, removed, brought back offline, and freed."""
    place = home / "life"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    if os.geteuid() == 0:
        shutil.chown(place, NOBODY, NOBODY)
    kit = installed(place, "gcc==11")
    root = Path(kit["folder"])

    def said(*words: str, code: int = 0) -> str:
        done = rekindle("toolchain", *words, home=place)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    assert kit["id"] in said("list") and "debian" in said("list")
    assert re.search(r"made of +\S*binutils", said("show", "gcc==11"))
    assert f"{int(kit['files']):,} files are as they were" in said("verify", "gcc==11")
    damaged = root / "bin" / "g++-11"
    damaged.chmod(0o755)
    damaged.write_bytes(bytes(reversed(damaged.read_bytes())))
    assert "1 file is not as it was: bin/g++-11" in said("verify", code=8)
    said("install", "gcc==11", "--again", "--offline")
    assert "files are as they were" in said("verify")
    said("remove", "gcc==11")
    assert not root.exists() and "no toolchains" in said("list")
    said("install", "gcc==11", "--offline")
    assert (root / "bin" / "g++-11").is_file()
    said("remove", "gcc==11")
    freed = re.search(r"freed ([\d,]+) MB", said("gc"))
    assert freed and int(freed[1].replace(",", "")) > 200
    assert "not downloaded yet" in said("install", "gcc==11", "--offline", code=14)
    shutil.rmtree(place)


def test_two_processes_bring_it_once(home: Path) -> None:
    """The second one waits for the first, and then has nothing left to fetch."""
    if shutil.which("apt-get") is None:
        pytest.skip("UNVERIFIED: there is no apt-get here")
    place = home / "two"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    if os.geteuid() == 0:
        shutil.chown(place, NOBODY, NOBODY)
    with ThreadPoolExecutor(max_workers=2) as pool:
        both = list(pool.map(lambda _: rekindle("toolchain", "install", "openblas", home=place), range(2)))
    assert [done.returncode for done in both] == [0, 0], both[0].stderr + both[1].stderr
    fetched = [line for done in both for line in done.stderr.splitlines() if line.startswith("fetching ")]
    assert len(fetched) == 1, fetched
    assert "files are as they were" in rekindle("toolchain", "verify", home=place).stdout
    shutil.rmtree(place)


def test_a_killed_download_goes_on(tmp_path: Path) -> None:
    """The real server, a real package of hundreds of MB, and a kill that lets nothing be tidied up."""
    if shutil.which("apt-get") is None:
        pytest.skip("UNVERIFIED: there is no apt-get here")
    archives = tmp_path / "t" / "archives"

    def begun() -> subprocess.Popen[bytes]:
        environ = {**os.environ, "REKINDLE_TOOLCHAIN": str(tmp_path / "t"), "PYTHONPATH": str(PROJECT / "src")}
        words = [sys.executable, "-m", "rekindle", "toolchain", "install", "cuda==11.8", "--accept-licence"]
        return subprocess.Popen(
            words, env=environ, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def until(process: subprocess.Popen[bytes], name: str, least: int) -> list[tuple[str, int]]:
        """Watch until a part of a package has so many bytes, then kill the run and all that it began."""
        seen: list[tuple[str, int]] = []
        try:
            end = time.monotonic() + seconds(900)
            while time.monotonic() < end and process.poll() is None:
                for path in archives.glob(f"partial/*/{name}.part"):
                    with contextlib.suppress(FileNotFoundError):
                        seen.append((path.name, path.stat().st_size))
                if seen and seen[-1][1] >= least:
                    return seen
                time.sleep(0.02)
            pytest.skip("UNVERIFIED: no package of CUDA 11.8 came in time")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    name, _ = until(begun(), "nvidia-cuda-dev_*.deb", 10 << 20)[-1]
    (left,) = archives.glob(f"partial/*/{name}")
    size = left.stat().st_size
    again = until(begun(), name.removesuffix(".part"), size + (5 << 20))
    assert min(each for _, each in again) >= size, "what was there was not thrown away"


def test_openblas_and_nccl_link_with_a_private_gcc(home: Path, tmp_path: Path) -> None:
    """A compiler with a sysroot of its own, and libraries out of other kits: both found, and the program runs."""
    gcc = Path(installed(home, "gcc==12")["folder"]) / "bin" / "gcc-12"
    calls = {
        "openblas": "void cblas_dscal(int,double,double*,int); {double v[2]={1,2}; cblas_dscal(2,3,v,1); n = v[1];}",
        "nccl": "int ncclGetVersion(int*); ncclGetVersion(&n);",
    }
    for tool, call in calls.items():
        library = Path(installed(home, tool, *(["--cuda", "12.6"] if tool == "nccl" else []))["folder"]) / "lib"
        code = f'int printf(const char*, ...);\nint main() {{ int n = 0; {call} printf("%d", n); return 0; }}\n'
        (tmp_path / f"{tool}.c").write_text(code, encoding="utf-8")
        words = [str(gcc), f"{tool}.c", "-o", tool, f"-L{library}", f"-l{tool}"]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        environ = {**os.environ, "LD_LIBRARY_PATH": str(library)}
        said = subprocess.run([f"./{tool}"], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
        assert said.stdout == "6" if tool == "openblas" else int(said.stdout) > 20000, said.stderr


def test_a_gcc_that_would_not_start_is_refused(home: Path) -> None:
    glibc = os.confstr("CS_GNU_LIBC_VERSION") or ""
    if shutil.which("apt-get") is None or tuple(map(int, glibc.split()[-1].split("."))) >= (2, 38):
        pytest.skip("UNVERIFIED: apt, and a glibc before 2.38, are needed")
    done = rekindle("toolchain", "install", "gcc==13", "--dry-run", home=home)
    assert done.returncode == 5 and "needs glibc 2.38" in done.stderr
