"""Takes Rekindle along to a machine without a network: its dependencies for several Pythons, in one folder.

    python tools/portable.py                         for this kind of machine, into build/portable
    python tools/portable.py --platform manylinux_2_28_x86_64 --python 3.10 --python 3.12

There, `sh build/portable/check [python]` runs the doctor and compares every probe with what other programs say.
pip does the fetching, so the mirror and proxy that are configured for it hold.
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
NEEDED = (
    "click>=8.1",
    "isal>=1.6",
    "msgspec>=0.18",
    "nvidia-ml-py>=12.535",
    "packaging>=23.2",
    "psutil>=5.9",
    "pytest>=8",
    "filelock",
)
NEEDED += ("platformdirs>=4", "tomli>=2", "exceptiongroup")

CHECK = """#!/bin/sh
# What Rekindle sees of this machine, compared with what other programs say. Usage: sh check [python]
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
python=${1:-python3}
tag=$("$python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
if [ ! -d "$here/$tag" ]; then
    echo "UNVERIFIED: no dependencies for $tag were taken along (there are: $(ls "$here"))"
    exit 9
fi
PYTHONPATH="$root/src:$root/tests:$here/$tag"
export PYTHONPATH
cd "$root" || exit 1
"$python" -m rekindle doctor --all
echo "--- doctor ended with $?"
"$python" -m rekindle doctor --paste
"$python" -m rekindle doctor --save "${OUT:-/tmp}/machine.json" --only gpu
"$python" -m rekindle doctor --machine "${OUT:-/tmp}/machine.json" --only gpu --only driver --only cuda
"$python" benchmarks/doctor.py --rounds 5 --python "$python"
"$python" -m pytest -p no:cacheprovider -rA -q tests/real/test_machine_here.py
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--platform", default=f"manylinux_2_28_{platform.machine()}")
    parser.add_argument("--python", action="append", help="3.10, 3.11, …; may be repeated")
    parser.add_argument("-o", "--output", type=Path, default=PROJECT / "build" / "portable")
    options = parser.parse_args()
    machine = options.platform.removeprefix("manylinux_2_28_")
    tags = [options.platform, f"manylinux_2_17_{machine}", f"manylinux2014_{machine}", f"manylinux_2_12_{machine}"]
    for python in options.python or ["3.10", "3.11", "3.12", "3.13"]:
        folder = options.output / f"cp{python.replace('.', '')}"
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "-q",
            "--only-binary=:all:",
            "--no-compile",
            "--upgrade",
            "--target",
            str(folder),
        ]
        command += ["--python-version", python, *[word for tag in tags for word in ("--platform", tag)], *NEEDED]
        if subprocess.run(command, check=False).returncode:
            print(f"could not fetch the dependencies for Python {python}", file=sys.stderr)
            return 1
        print(f"{folder}")
    script = options.output / "check"
    script.write_text(CHECK, encoding="utf-8", newline="\n")
    script.chmod(0o755)
    return 0


if __name__ == "__main__":
    sys.exit(main())
