"""A private compiler of a newer system than this one: it is told apart from one that works."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rekindle.core.version import Version
from rekindle.machine.host import Host
from rekindle.model.platform import Platform
from rekindle.toolchain.model import Kit
from rekindle.toolchain.verify import does_not_start

pytestmark = pytest.mark.skipif(os.name == "nt", reason="a shell script stands for the compiler")

# What Debian 13's g++-13 says on Debian 12, shortened.
NEWER = "g++-13: /lib/aarch64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found (required by g++-13)"


def kit(root: Path, script: str, *, arch: str | None = None) -> Kit:
    program = root / "bin" / "g++"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    host = Host()
    place = Platform(system=host.os, arch=arch or host.arch)
    return Kit(name="gcc", version=Version("13.3.0"), place=place, provider="debian")


def test_a_compiler_that_asks_for_a_newer_c_library_is_named_with_it(tmp_path: Path) -> None:
    said = does_not_start(tmp_path, kit(tmp_path, f'echo "{NEWER.replace("`", chr(92) + "`")}" >&2; exit 1'))
    assert said == "it needs GLIBC_2.38, which this system's C library does not have"


def test_one_that_answers_or_is_for_another_computer_is_left(tmp_path: Path) -> None:
    assert does_not_start(tmp_path / "a", kit(tmp_path / "a", "echo 13.3.0")) is None
    assert does_not_start(tmp_path / "b", kit(tmp_path / "b", "exit 1", arch="riscv64")) is None
