"""Time and disk of `rekindle toolchain install` against `apt-get install` of the same packages, one after the other.

    python -m benchmarks.toolchain ROOT     (as root; ROOT is a bookworm that debootstrap made, without CUDA and g++-11)

apt installs into an overlay of ROOT, which is thrown away; Rekindle into an empty folder, with its own lists of
packages fetched anew. Both download what they need. REKINDLE_BENCH_TOOL names what to measure: `gcc==11`, or
`cuda==11.8`, which brings GCC 11 on both sides and takes 8 GB of disk. apt installs whole packages; Rekindle leaves out
what no build of PyTorch uses (static libraries, NPP, the debugger).

Measured once each, on two aarch64 cores that others were using (load 13 to 25), so that the times say little:
gcc==11 79 s and 263 MB with its archives, apt 90 s and 385 MB; cuda==11.8 with gcc==11 614 s and 3,290 MB (1,984 MB
after `toolchain gc`), apt 493 s and 5,937 MB: time 1.25, disk 0.55 of apt's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOTS = {"gcc": ["g++-11", "binutils"], "cuda": ["nvidia-cuda-toolkit", "g++-11"]}
BESIDE = {"gcc": [], "cuda": ["gcc==11"]}

IN_OVERLAY = """
set -e
mount -t overlay overlay -o lowerdir="$1",upperdir="$2/upper",workdir="$2/work" "$2/merged"
mount --rbind /dev "$2/merged/dev"; mount -t proc proc "$2/merged/proc"
cp /etc/resolv.conf "$2/merged/etc/resolv.conf" 2>/dev/null || true
cp /etc/apt/apt.conf.d/99* "$2/merged/etc/apt/apt.conf.d/" 2>/dev/null || true
sed -i 's/ main$/ main contrib non-free/' "$2/merged/etc/apt/sources.list"
shift 2
"""


def main() -> int:
    root = Path(sys.argv[1])
    tool = os.environ.get("REKINDLE_BENCH_TOOL", "gcc==11")
    packages, beside = ROOTS[tool.partition("=")[0]], BESIDE[tool.partition("=")[0]]
    with tempfile.TemporaryDirectory(prefix="rekindle-bench-") as name:
        folder = Path(name)
        ours = _timed(
            [sys.executable, "-m", "rekindle", "toolchain", "install", tool, *beside, "--accept-licence"],
            {"REKINDLE_TOOLCHAIN": str(folder / "t")},
        )
        kits, archives = _size(folder / "t" / "kits"), _size(folder / "t" / "archives")
        shutil.rmtree(folder / "t")
        for part in ("upper", "work", "merged"):
            (folder / part).mkdir()
        script = (
            IN_OVERLAY
            + 'exec chroot "$0" sh -c "apt-get update -q && apt-get install -qy --no-install-recommends $*"\n'
        )
        words = ["unshare", "-m", "sh", "-c", script, str(folder / "merged"), str(root), str(folder), *packages]
        theirs = _timed(words, {"DEBIAN_FRONTEND": "noninteractive"})
        upper = _size(folder / "upper")
    whole = kits + archives
    print(f"rekindle toolchain install {' '.join([tool, *beside])}: {ours:.1f} s, {whole / 1e6:,.0f} MB, ", end="")
    print(f"{archives / 1e6:,.0f} MB of them archives that `toolchain gc` frees")
    print(f"apt-get install {' '.join(packages)}: {theirs:.1f} s, {upper / 1e6:,.0f} MB with its archives")
    print(f"ratio (Rekindle to apt): time {ours / theirs:.2f}, disk {whole / upper:.2f}")
    return 0


def _timed(words: list[str], environ: dict[str, str]) -> float:
    begun = time.monotonic()
    done = subprocess.run(words, env={**os.environ, **environ}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(
            f"{' '.join(words[:6])} ended with {done.returncode}:\n{done.stderr[-800:]}{done.stdout[-400:]}"
        )
    return time.monotonic() - begun


def _size(folder: Path) -> int:
    """Bytes on the disk; a file with two names counts once."""
    seen: dict[tuple[int, int], int] = {}
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            told = path.stat()
            seen[told.st_dev, told.st_ino] = told.st_size
    return sum(seen.values())


if __name__ == "__main__":
    sys.exit(main())
