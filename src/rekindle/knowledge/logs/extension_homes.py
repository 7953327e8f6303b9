"""Which package brings a name: whose a compiled module is and where its builds are, pip's for what Python imports, the
system's for a header or a library that is missed; and which torch has a name of its Python interface.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from rekindle.core.pattern import late
from rekindle.core.version import Version
from rekindle.knowledge.tables import Row, cached, rows
from rekindle.model.card import Capability


class ExtensionHome(Row, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`builds` and `windows` say where ready-made files are, as parts of a sentence; `find` is a switch of pip."""

    package: str
    modules: tuple[str, ...]
    repository: str
    builds: str
    from_source: bool
    sdist: bool = False
    """Its source is on the index, and `rekindle extension build` takes it, though pip alone is not the way."""
    find: str | None = None
    find_torch: tuple[str, ...] = ()
    find_newest: Version | None = None
    """The first torch whose list has the newest release; before, pip takes the newer source of the package index."""
    windows: str | None = None
    compiles_on_windows: bool = True
    abi_in_names: bool = False
    begins: Capability | None = None
    """The oldest card that any build of it has code for, where that is known."""
    without_code: bool = False
    """It has no GPU code of its own: its kernels come with another package, or it needs none."""
    any_card: bool = False
    """Its own code asks for no least card: it is compiled for whatever torch runs on."""
    begins_since: Version | None = None
    """The release from which `begins` holds; None: for every release."""
    lines_since: tuple[tuple[Version, Version], ...] = ()
    """CUDA releases, each with the first release of the package that holds a library for it; older ones hold none."""
    instead: str | None = None
    """What to do on an older card, as a part of a sentence."""

    def lists(self, torch: str, variant: str) -> str | None:
        """The switch that names the list of wheels for this torch and CUDA, where there is one."""
        minor = Version(torch).major_minor
        if self.find is None or not Version(self.find_torch[0]) <= minor <= Version(self.find_torch[1]):
            return None
        full = torch if torch.count(".") > 1 else f"{torch}.0"
        only = "--only-binary :all: " if self.find_newest and minor < self.find_newest else ""
        return only + self.find.format(minor=minor, variant=variant, torch=full, digits=str(minor).replace(".", ""))


class ExtensionWheel(Row, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A release with the torch that its files were made for: a patch release, or a minor one with all its patches."""

    package: str
    version: str
    torch: tuple[str, ...]
    glibc: str | None = None
    and_later: bool = False
    """It keeps to torch's stable interface, and serves every later torch too."""

    def serves(self, torch: str) -> bool:
        if torch in self.torch or str(Version(torch).major_minor) in self.torch:
            return True
        return self.and_later and Version(torch) > Version(self.torch[-1])


homes = rows("extension_homes.toml", "home", ExtensionHome)
_wheel = rows("extension_homes.toml", "wheel", ExtensionWheel)


@cached
def _by_name() -> dict[str, ExtensionHome]:
    rows = homes()
    named = {name.lower(): row for row in rows for name in row.modules}
    return named | {row.package.lower().replace("-", "_"): row for row in rows}


def home(module: str) -> ExtensionHome | None:
    """`flash_attn_2_cuda`, `flash_attn.layers` and `flash-attn` are all of flash-attn."""
    return _by_name().get(module.partition(".")[0].lower().replace("-", "_"))


@cached
def _by_repository() -> dict[str, ExtensionHome]:
    return {row.repository.rpartition("/")[2].lower(): row for row in homes() if row.repository}


def home_of_folder(name: str) -> ExtensionHome | None:
    """By the folder that a clone of its repository makes: `flash-attention` is flash-attn's."""
    return home(name) or _by_repository().get(name.lower())


def wheels(package: str) -> tuple[ExtensionWheel, ...]:
    """The releases whose torch is known, oldest first."""
    return tuple(row for row in _wheel() if row.package == package)


def wheel_for(package: str, torch: str) -> ExtensionWheel | None:
    """The newest release whose ready-made files serve this torch."""
    return next((row for row in reversed(wheels(package)) if row.serves(torch)), None)


def for_glibc(package: str, glibc: str, torch: str | None) -> ExtensionWheel | None:
    """The newest release whose files run on this C library, and serve this torch where it is known."""
    known = (row for row in reversed(wheels(package)) if row.glibc and (torch is None or row.serves(torch)))
    return next((row for row in known if Version(row.glibc or "0") <= Version(glibc)), None)


class PythonName(Row, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A name of a package in Python, with the first release that has it or that has it no more."""

    name: str
    package: str = "torch"
    since: str | None = None
    gone: str | None = None


_python_names = rows("python_names.toml", "row", PythonName)


@cached
def python_names() -> dict[str, PythonName]:
    return {row.name: row for row in _python_names()}


_INSTALLABLE = late(r"[a-z][a-z0-9_]*")


class ImportName(Row, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`package` empty: the module is a compiled part of another project and cannot be installed by itself."""

    name: str
    package: str


class SystemPackage(Row, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`files` are patterns (`*` matches anything) of the name as a compiler or the loader prints it."""

    package: str
    kind: str
    files: tuple[str, ...]


_import_names = rows("import_names.toml", "row", ImportName)
system_packages = rows("system_packages.toml", "row", SystemPackage)


@cached
def import_names() -> dict[str, str]:
    return {row.name: row.package for row in _import_names()}


def distribution(module: str) -> str | None:
    """`cv2` is opencv-python; `mmcv._ext` and `flash_attn_2_cuda` are compiled parts that pip does not have."""
    top, _, rest = module.partition(".")
    if any(part.startswith("_") for part in (top, *rest.split("."))):
        return None
    if top in import_names():
        return import_names()[top] or None
    if not _INSTALLABLE.fullmatch(top) or top.endswith(("_cuda", "_ext", "_cpp", "_kernels", "_bindings", "_c")):
        return None
    return top.replace("_", "-")


def meant(module: str) -> str | None:
    """`dectron2` is most likely detectron2. None for a name that is known, or too short to tell."""
    import difflib

    top, known = module.partition(".")[0].lower(), import_names().keys() | _by_name().keys()
    close = difflib.get_close_matches(top, known, n=1, cutoff=0.88) if len(top) > 6 and top not in known else []
    return close[0] if close else None


def package_of(name: str, *, kind: str) -> str | None:
    """`kind`: `header`, `cmake` and `system` (a library) are Debian's, `library` is of NVIDIA's CUDA repository."""
    rows = (row for row in system_packages() if row.kind == kind)
    return next((row.package for row in rows if any(fnmatchcase(name, pattern) for pattern in row.files)), None)
