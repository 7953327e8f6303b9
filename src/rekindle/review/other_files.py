"""Files that a script runs in its own shell: `source env.sh`, `call setenv.bat`, `. .\\env.ps1`.

Only files beside the script and below are opened, each once, within a budget: a script is foreign text, and the paths
in it must not lead out of the folder that was given.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from rekindle.core import files
from rekindle.core.console import clean

_LARGEST = 256 << 10
_ALL = 1 << 20
_MOST = 12
# What stands for the script's own folder.
_OWN_FOLDER = re.compile(
    r"(?i)^(?:%~dp0|%cd%[\\/]|\$psscriptroot[\\/]|\$\{?psscriptroot\}?[\\/]|\$\(.*dirname.*\)[\\/]"
    r"|\$\{BASH_SOURCE[^}]*\}[\\/]|\$\{?(?:script_?dir|script_?path|this_?dir|here|dir|cwd|pwd|root)\}?[\\/])"
)


_COPIES = re.compile(r"(?im)^[ \t]*(?:COPY|ADD)[ \t](.*)$")


def context_of(folder: Path, dockerfile: str) -> Path:
    """The folder that a Dockerfile copies from: the one above where what it names lies only there."""
    rows = [match[1].split()[:-1] for match in _COPIES.finditer(dockerfile) if "--from" not in match[1]]
    every = (name for words in rows for name in words if re.fullmatch(r"(?:\./)?\w[\w./-]*", name))
    names = [name for name in every if ".." not in name][:_MOST]
    above = folder.resolve().parent

    def lies(place: Path) -> bool:
        return any((place / name).is_file() for name in names)

    return above if lies(above) and not lies(folder) else folder


def is_own_folder(spelled: str) -> bool:
    """`$PSScriptRoot`, `%~dp0`, `$(dirname "$0")`: where the script itself lies."""
    named = re.search(r"(?i)script|~dp0|dirname|BASH_SOURCE", spelled)
    return named is not None and _OWN_FOLDER.fullmatch(spelled.strip("\"'\\/") + "/") is not None


class OtherFile(msgspec.Struct, frozen=True):
    name: str
    text: str


class OtherFiles:
    """The files beside a script, as far as it may open them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._opened: dict[Path, OtherFile | None] = {}
        self._written: dict[str, OtherFile | None] = {}
        self._read = 0

    def text(self, spelled: str, directory: str | None) -> OtherFile | None:
        """A list that commands read, as often as they like: where they copied it to, it is looked for by its name."""
        if spelled in self._written:
            return self._written[spelled]
        last = re.split(r"[\\/]", spelled.strip("\"'"))[-1]
        above = ".." in re.split(r"[\\/]", f"{directory or ''}/{spelled}")
        found = self.open(spelled, directory, again=True)
        return found or (None if above else self.open(last, None, again=True))

    def write(self, spelled: str, text: str, *, more: bool = False) -> None:
        """What the script writes into a file itself, which is then what its commands read."""
        before = self.text(spelled, None) if more else None
        whole = (before.text if before else "") + text
        if len(whole) <= _LARGEST:
            self._written[spelled] = OtherFile(spelled, whole)

    def changes(self, spelled: str) -> None:
        """What `sed -i` makes of a file is not known, nor is the file."""
        if self.text(spelled, None) is not None:
            self._written[spelled] = None

    def open(self, spelled: str, directory: str | None, *, again: bool = False) -> OtherFile | None:
        """A file as the script names it; None where it is not there, leads out of the folder, or costs too much."""
        name = _OWN_FOLDER.sub("", spelled.strip().strip("\"'")).replace("\\", "/")
        if not name or len(name) > 200 or re.search(r"[$%*?`\0:]", name) or name.startswith(("/", "~")):
            return None
        # What lies above the script's folder is not opened, and no other file of that name stands for it.
        own = "" if ".." not in re.split(r"[\\/]", directory or "") else directory or ""
        for place in dict.fromkeys((directory or "", own)):
            found = self._text(Path(place.replace("\\", "/")) / name, name, again=again)
            if found is not None:
                return found
        return None

    def _text(self, relative: Path, name: str, *, again: bool) -> OtherFile | None:
        if relative.is_absolute():
            return None
        try:
            root = self._folder.resolve()
            path = (root / relative).resolve()
            if path in self._opened:
                return self._opened[path] if again else None
            if not path.is_relative_to(root) or len(self._opened) >= _MOST:
                return None
            data = files.plain_bytes(path, limit=min(_LARGEST, _ALL - self._read))
        except (OSError, ValueError, RuntimeError):
            return None
        self._read += len(data)
        text = data.decode("utf-8-sig", "replace").replace("\r\n", "\n")
        whole = "\n".join(clean(line) for line in text.split("\n"))
        self._opened[path] = None if "\0" in text else OtherFile(name, whole)
        return self._opened[path]
