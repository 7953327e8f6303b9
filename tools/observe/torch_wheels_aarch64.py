"""Regenerates `torch/torch_wheels_aarch64.json`: the GPU code inside the CUDA wheels for aarch64 Linux.

    python -m tools.observe.torch_wheels_aarch64

One wheel per release that `wheel_platforms.json` says is a CUDA build for aarch64. Read as the x86_64 ones are, but not
compared with cuobjdump.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from rekindle.formats.package import open_package
from rekindle.knowledge.torch.wheel_platforms import wheel_platforms
from rekindle.wheels.inspect import identity
from rekindle.wheels.inspect.identity import read_binaries
from tools.observe import index, table
from tools.observe.torch_wheels import row


def main() -> None:
    rows = []
    for wanted in wheel_platforms():
        if wanted.machine != "aarch64" or not wanted.cuda:
            continue
        with tempfile.TemporaryDirectory() as folder:
            command = [*index.PIP, "download", "-q", "--no-deps", "--only-binary=:all:", "--python-version", "3.11"]
            command += ["--platform", f"{wanted.tag}_aarch64", "-d", folder, f"torch=={wanted.torch}"]
            subprocess.run(command, check=True, timeout=1800)
            path = next(Path(folder).glob("*.whl"))
            print(path.name, file=sys.stderr, flush=True)
            with open_package(path) as package:
                binaries = read_binaries(package)
                found = row(wanted.torch, path, identity.identify(package, binaries), binaries)
        rows.append({**found, "machine": "aarch64"})
    table.write("torch_wheels_aarch64", {"wheels": rows})


if __name__ == "__main__":
    main()
