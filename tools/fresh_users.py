"""Runs a built wheel as a new user would, by pipx and by uvx, with each of the Pythons given. Prints a table.

    python -m tools.fresh_users dist/rekindle_torch-0.2.0-py3-none-any.whl /usr/bin/python3.13 /usr/bin/python3.14

pipx and uv must be on PATH; packages come from the index that pip is configured for, and only as wheels: no compiler.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

QUESTION = ("plan", "--gpu", "GTX 1080 Ti", "--os", "windows", "--python", "3.11", "--as", "pip")
ANSWER = "pip install torch=="


def ways(wheel: Path, python: str) -> Iterator[tuple[str, list[str], bool]]:
    """The name of a way, its command line, and whether its program is here."""
    yield "pipx", ["pipx", "run", "--python", python, "--no-cache", "--spec", str(wheel), "rekindle"], _here("pipx")
    yield "uvx", ["uvx", "--no-config", "--python", python, "--from", str(wheel), "rekindle"], _here("uvx")


def _here(program: str) -> bool:
    return shutil.which(program) is not None


def tried(command: list[str], home: Path) -> tuple[str, float]:
    """PASS or what went wrong, and the seconds of the whole, downloads included."""
    environment = {**os.environ, "PIPX_HOME": str(home / "pipx"), "UV_CACHE_DIR": str(home / "uv"), "COLUMNS": "100"}
    environment |= {"PIP_ONLY_BINARY": ":all:", "UV_NO_BUILD": "1", "REKINDLE_CACHE": str(home / "cache")}
    environment.pop("PYTHONPATH", None)
    begun = time.monotonic()
    done = subprocess.run(
        [*command, *QUESTION], env=environment, cwd=home, capture_output=True, encoding="utf-8", check=False
    )
    seconds = time.monotonic() - begun
    if done.returncode == 0 and ANSWER in done.stdout:
        return "PASS", seconds
    last = (done.stderr.strip() or done.stdout.strip() or "nothing was printed").splitlines()[-1]
    return f"FAIL: {last[:160]}", seconds


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("pythons", nargs="+")
    options = parser.parse_args(arguments)
    failed = False
    print("| Python | way | seconds | result |\n|---|---|---:|---|")
    for python in options.pythons:
        asked = [python, "-c", "import platform; print(platform.python_version())"]
        version = subprocess.run(asked, capture_output=True, encoding="utf-8", check=True).stdout.strip()
        for name, command, here in ways(options.wheel.resolve(), python):
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
                said, seconds = tried(command, Path(home)) if here else (f"UNVERIFIED: no {name} here", 0.0)
            failed |= said.startswith("FAIL")
            print(f"| {version} | {name} | {seconds:.0f} | {said} |", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
