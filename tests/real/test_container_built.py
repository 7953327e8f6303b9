"""The Dockerfile of `rekindle build --container`, built by buildah (chroot isolation) from a debootstrap root."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rekindle.wheels.shelf import shelf
from support.artefacts import unverified
from support.command import rekindle_command
from support.debians import minimal_debian
from support.fleets import ROOT, pebble

CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


class Buildah:
    """Its storage in a folder of its own, which copies layers: that works wherever root is."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("buildah") is None or os.geteuid() != 0:
            unverified("buildah and root are needed")
        self.head = ["buildah", "--storage-driver", "vfs", "--root", str(folder / "s"), "--runroot", str(folder / "r")]

    def __call__(self, *words: str) -> str:
        done = subprocess.run([*self.head, *words], capture_output=True, text=True, check=False, timeout=3000)
        assert done.returncode == 0, (words[0], done.stdout[-1500:], done.stderr[-1500:])
        return done.stdout.strip()


def base_image(buildah: Buildah, folder: Path) -> str:
    """A plain Debian with this machine's way to packages, and Rekindle's own wheel; the requirement for pip."""
    root = minimal_debian()
    made = buildah("from", "scratch")
    place = Path(buildah("mount", made))
    shutil.copytree(root, place, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns("site-*", "whole"))
    words = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(place / "opt"), str(ROOT)]
    subprocess.run(words, check=True, timeout=600)
    if CERTIFICATES.is_file():
        shutil.copyfile(CERTIFICATES, place / "opt" / "ca.crt")
    for configured in (Path("/etc/pip.conf"),):
        if configured.is_file():
            shutil.copyfile(configured, place / "etc" / "pip.conf")
    (wheel,) = (place / "opt").glob("rekindle_torch-*.whl")
    buildah("umount", made)
    for name in ("PIP_CERT", "SSL_CERT_FILE"):
        buildah("config", "--env", f"{name}=/opt/ca.crt", made)
    buildah("commit", "-q", made, "rekindle-base")
    buildah("rm", made)
    return f"/opt/{wheel.name}"


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="buildah is for Linux")
def test_the_container_is_built_and_holds_a_shelf_with_the_wheel(tmp_path: Path) -> None:
    buildah = Buildah(tmp_path)
    requirement = base_image(buildah, tmp_path)
    pebble(tmp_path, "pebble")
    file = tmp_path / "pebble" / "Dockerfile"
    words = ["--container", str(file), "--base", "localhost/rekindle-base", "--rekindle", requirement]
    seen = rekindle_command("build", str(tmp_path / "pebble" / "build.toml"), *words)
    assert seen.code == 0, seen.err
    buildah("bud", "--isolation", "chroot", "--layers=false", "-t", "made", "-f", str(file), str(tmp_path / "pebble"))
    made = buildah("from", "localhost/made")
    place = Path(buildah("mount", made))
    (entry,) = shelf.entries(place)
    assert (entry.project, entry.version) == ("pebble", "1.0") and entry.signed_by
    assert not (place / "usr").exists(), "the last stage holds the shelf and nothing else"
