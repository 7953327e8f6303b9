"""What is only read to be judged, and what a signature vouches for: scripts, environments, statements, lists."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from rekindle import api
from rekindle.core import codec, console, signing
from rekindle.core.findings import State
from rekindle.fleet.factory import site
from rekindle.wheels.shelf import index, provenance
from rekindle.wheels.shelf.store import ShelvedWheel
from rekindle.wheels.verify.verify import Verification
from tools.hostile import handed, mostly, texts

NAMES = (
    "build.bat", "build.ps1", "build.sh", "Dockerfile", "requirements.txt", "environment.yml", "pyproject.toml",
    ".github/workflows/x.yml", "README.md", "Makefile", "x.ipynb", "justfile",
)  # fmt: skip
_PIECES = (
    "pip install torch==2.7.1", "--index-url https://download.pytorch.org/whl/cu118", "set A=%A%;%B%", "export A=$A:$B",
    "if (", ")", "for %%i in (1 2 3) do (", "FROM nvidia/cuda:12.4.1-devel-ubuntu22.04", "RUN ", "ENV X=$X", "\\", "^",
    "`", "$(", "${A:-${B}}", "'", '"', "<<EOF", "EOF", "@'", "'@", "#", "REM ", "::", "call :x", ":x", "goto x",
    "- run: |", "name: x", "- torch=2.1", "{{ x }}", "[project]", "dependencies = [", "conda install pytorch",
    "uv pip install -r x", "TORCH_CUDA_ARCH_LIST=3.5;6.1+PTX", "python setup.py bdist_wheel", "&a [*a, *a]", "<<: *a",
    "| tee x", "&& ", "\t", "", "${{ a", "A=1 |Out-File", "${A:-b", "%A:b=", "( `", "a() {", "if ($x) {", "sudo -u",
)  # fmt: skip


_RUN = "pip install torch==2.7.1 && python setup.py bdist_wheel\n"
_STRUCTURED: dict[str, Any] = {
    ".github/workflows/x.yml": {
        "on": "push", "env": {"TORCH_CUDA_ARCH_LIST": "6.1"}, "jobs": {"a": {
            "runs-on": "ubuntu-22.04", "container": "nvidia/cuda:12.4.1-devel-ubuntu22.04", "strategy": {
                "matrix": {"torch": ["2.7.1", "2.1"], "include": [{"torch": "2.0"}]}},
            "steps": [{"uses": "actions/setup-python@v5", "with": {"python-version": "3.11"}},
                      {"run": _RUN, "shell": "bash", "env": {"A": "${{ matrix.torch }}"}}]}}},
    "environment.yml": {"name": "x", "channels": ["pytorch", "nvidia"], "dependencies": [
        "python=3.11", "pytorch=2.1", "pytorch-cuda=12.1", {"pip": ["torch==2.7.1", "--index-url x"]}]},
    "x.ipynb": {"nbformat": 4, "metadata": {}, "cells": [
        {"cell_type": "code", "source": ["!pip install torch==2.7.1\n", "%env A=b"], "outputs": []}]},
}  # fmt: skip


def script(dice: random.Random) -> bytes:
    """The first byte says which kind it is."""
    kind = dice.randrange(len(NAMES))
    if (good := _STRUCTURED.get(NAMES[kind])) and dice.random() < 0.8:
        bad = handed.spoiled(dice, good)
        return bytes([kind]) + (json.dumps(bad) if NAMES[kind] == "x.ipynb" else yaml.safe_dump(bad)).encode()
    one = " ".join(dice.choice(_PIECES) for _ in range(dice.randrange(1, 8)))
    lines = [one] * mostly(dice, [1, 30], [2000, 8000]) if dice.random() < 0.5 else []
    for _ in range(dice.choice((1, 20, 60))):
        parts = (texts.line(dice, 2) if dice.random() < 0.1 else dice.choice(_PIECES) for _ in range(6))
        lines.append(" ".join(parts))
    if dice.random() < 0.1:
        lines.insert(dice.randrange(len(lines)), dice.choice(" _=/-a:'\"") * dice.choice((9_000, 100_000)))
    text = dice.choice(("\n", "\n", "\r\n", "\n    ", " ", "\\\n")).join(lines)
    return bytes([kind]) + text.encode("utf-8", "replace")


def reviewed(path: Path) -> None:
    data = path.read_bytes()
    place = path.parent / NAMES[data[0] % len(NAMES)]
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(data[1:])
    api.review([place], gpus=["GTX 1080"], os="linux")


def environment(dice: random.Random) -> bytes:
    """Names and texts of an environment's files, as JSON."""
    parts = ("METADATA", "RECORD", "WHEEL", "INSTALLER", "direct_url.json", "top_level.txt")
    found: dict[str, str] = {}
    for _ in range(dice.choice((1, 3, 6))):
        project = dice.choice(("torch", "demo", "nvidia_x", "numpy"))
        info = f"{project}-{dice.choice(('2.7.1+cu118', '1.0', 'x', '²'))}.dist-info"
        for name in parts:
            made = dice.choice((texts.metadata, texts.record, lambda dice: texts.as_json(dice, {"url": "file:///x"})))
            found[f"{info}/{name}"] = made(dice).decode("utf-8", "replace")
    found["torch/version.py"] = f"__version__ = '{dice.choice(('2.7.1+cu118', 'x', '9' * 5000))}'\ncuda = '11.8'\n"
    found["x.pth"] = dice.choice(("import os; os.system('touch ../x')\n", "../..\n" * 99, "/\n"))
    found[dice.choice(("a.so", "demo/a.so", "torch/lib/a.so"))] = "\x7fELF" + texts.line(dice)
    return json.dumps(found).encode()


def audited(path: Path) -> None:
    root = path.parent / "env"
    packages = root / "lib" / "python3.11" / "site-packages"
    (root / "bin").mkdir(parents=True)
    (root / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.2\n", encoding="ascii")
    (root / "bin" / "python").write_text("#!/bin/sh\ntouch ../x\n", encoding="ascii")
    (root / "bin" / "python").chmod(0o755)
    for name, text in json.loads(path.read_bytes()).items():
        (packages / name).parent.mkdir(parents=True, exist_ok=True)
        (packages / name).write_text(text, encoding="utf-8", newline="")
    api.audit(root, gpus=["GTX 1080"], driver="580.65.06")


def _statement() -> Any:
    entry = codec.from_builtins(handed.ENTRY, ShelvedWheel)
    checked = Verification(subject=entry.file, kind="wheel", sha256=entry.sha256, state=State.PASS)
    return json.loads(provenance._payload(entry, checked, None, {}))


def signed(kind: str, good: Callable[[], Any]) -> Callable[[random.Random], bytes]:
    """Somebody whom you trust has signed it: what is inside is still not to be believed in shape."""

    def make(dice: random.Random) -> bytes:
        return codec.to_json(handed._key().sign(handed.as_json(good())(dice), kind)).encode()

    return make


def stated(data: bytes) -> None:
    envelope = signing.read_envelope(data, name="the statement")
    provenance.opened(envelope, [handed._key().public], name="the statement")


RECORDS = {
    "schema": "rekindle.shelf/1", "base": "https://wheels.example.org", "wheels": [handed.ENTRY],
    "jobs": [{"key": handed.NULLS, "wheel": handed.WHEEL, "sha256": handed.NULLS, "lock": handed._JOB["lock"]}],
}  # fmt: skip


def brought(path: Path) -> None:
    """`path` is the list of a factory's site, which it has signed itself."""
    os.environ["REKINDLE_KEY"] = str(path.parent / "key.pem")
    console.talk(quiet=True)
    try:
        index.sign_listing(path.parent)
        site.bring(str(path.parent), path.parent.parent / "shelf")
    finally:
        del os.environ["REKINDLE_KEY"]
        console.talk(quiet=False)


BUILD_FILE = {
    "source": ".", "name": "demo", "version": "1.0", "backend": "cmake", "cuda": "11.8", "arch_list": "6.1;8.6+PTX",
    "python": "3.11", "options": {"USE_X": "ON"}, "requires": ["cmake<4"],
}  # fmt: skip
