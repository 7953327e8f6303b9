"""Wheels for shelves: pure ones that any Python can install, and reports as `verify` would write them."""

from __future__ import annotations

from pathlib import Path

from rekindle.core import codec
from rekindle.core.findings import State
from rekindle.core.paths import sha256_of
from rekindle.wheels.verify.verify import Verification, report_beside
from support import small_wheels


def pure_wheel(
    folder: Path, project: str = "demo", version: str = "1.0", body: str = "", name: str | None = None
) -> Path:
    info = f"{project}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name or project}\nVersion: {version}\nRequires-Python: >=3.8\n"
    files = {
        f"{project}_package/__init__.py": f"version = {version!r}\n{body}".encode(),
        f"{info}/METADATA": metadata.encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    return small_wheels.make(folder, files, name=f"{project}-{version}-py3-none-any.whl")


def with_report(wheel: Path, state: State = State.PASS) -> Path:
    """An unsigned report that says what it likes."""
    report = Verification(subject=wheel.name, kind="wheel", sha256=sha256_of(wheel), state=state)
    report_beside(wheel).write_text(codec.to_json(report), encoding="utf-8")
    return wheel
