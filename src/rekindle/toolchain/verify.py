"""A kit against its own record: every file there, none changed, none more; and whether its nvcc still answers."""

from __future__ import annotations

import os
import re
from pathlib import Path

from rekindle.core import run
from rekindle.core.command import rekindle
from rekindle.core.findings import Finding, Fix, State
from rekindle.core.paths import STATE_FOLDER, sha256_of
from rekindle.machine.host import Host
from rekindle.machine.toolchain import toolkits
from rekindle.toolchain.model import Kit, KitPlatform
from rekindle.toolchain.store import Store

_NAMED = 3


def verify(store: Store, kit: Kit) -> tuple[Finding, ...]:
    root = store.folder(kit)
    again = Fix(
        text="make it anew", commands=(rekindle("toolchain", "install", f"{kit.name}=={kit.version}", "--again"),)
    )
    if not root.is_dir():
        return (Finding(id=f"{kit.id}-files", state=State.FAIL, found=f"`{root}` is gone", fix=again),)
    found = []
    if kit.adopted:
        text = f"{kit.id} is a folder of yours, `{root}`: which files belong to it is not known"
        found.append(Finding(id=f"{kit.id}-files", state=State.UNVERIFIED, found=text))
    else:
        wrong = [*_changed(root, kit), *_more(root, kit)]
        if wrong:
            count = "1 file is not as it was" if len(wrong) == 1 else f"{len(wrong):,} files are not as they were"
            text = f"{kit.id}: {count}: {', '.join(wrong[:_NAMED])}"
            found.append(Finding(id=f"{kit.id}-files", state=State.FAIL, found=text, fix=again))
        else:
            text = f"{kit.id}: {len(kit.files):,} files are as they were"
            found.append(Finding(id=f"{kit.id}-files", state=State.PASS, found=text))
    if kit.name == "cuda" and kit.place == KitPlatform.here():
        found.append(_answers(Host(), root, kit, again))
    if (fault := does_not_start(root, kit)) is not None:
        text = f"the compiler of {kit.id} does not start here: {fault}"
        found.append(Finding(id=f"{kit.id}-gcc", state=State.FAIL, found=text))
    return tuple(found)


def does_not_start(root: Path, kit: Kit) -> str | None:
    """Why a private compiler made for this kind of computer does not run on it; None when nothing speaks against it.

    Packages of a newer release than the system's ask its C library for what it does not have yet.
    """
    if kit.name != "gcc" or kit.place != KitPlatform.here():
        return None
    said = run.call([str(root / "bin" / "g++"), "--version"], timeout=60)
    needs = None if said.ok else re.search(r"version `(GLIBC(?:XX)?_[\d.]+)' not found", said.err)
    return f"it needs {needs[1]}, which this system's C library does not have" if needs else None


def _changed(root: Path, kit: Kit) -> list[str]:
    wrong = []
    for file in kit.files:
        path = root / file.path
        if file.link is not None:
            if not path.is_symlink() or os.readlink(path) != file.link:  # noqa: PTH115 - as it is written
                wrong.append(file.path)
        elif (
            path.is_symlink()
            or not path.is_file()
            or path.stat().st_size != file.size
            or sha256_of(path) != file.sha256
        ):
            wrong.append(file.path)
    return wrong


def _more(root: Path, kit: Kit) -> list[str]:
    known = {file.path for file in kit.files}
    found = []
    for folder, folders, names in os.walk(root):
        here = Path(folder).relative_to(root)
        for name in [*names, *(one for one in folders if (Path(folder) / one).is_symlink())]:
            path = (here / name).as_posix()
            if path not in known and not path.startswith(STATE_FOLDER):
                found.append(f"{path} (not ours)")
    return found


def _answers(host: Host, root: Path, kit: Kit, again: Fix) -> Finding:
    toolkit = toolkits.at(host, str(root), "rekindle")
    if toolkit is None or toolkit.version is None:
        return Finding(id=f"{kit.id}-nvcc", state=State.FAIL, found=f"the nvcc of {kit.id} does not start", fix=again)
    if toolkit.missing:
        text = f"nvcc {toolkit.version} answers; missing: {', '.join(toolkit.missing)}"
        return Finding(id=f"{kit.id}-nvcc", state=State.WARN, found=text)
    return Finding(
        id=f"{kit.id}-nvcc", state=State.PASS, found=f"nvcc {toolkit.version} answers, and nothing is missing"
    )
