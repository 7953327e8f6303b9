"""This Rekindle itself: how it was started, and how more of it is installed. What is printed must work when pasted."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from functools import cache
from pathlib import Path

from rekindle import __version__
from rekindle.core import paths
from rekindle.core.command import Command, pip
from rekindle.core.errors import MissingTool, UsageError

DISTRIBUTION = "rekindle-torch"
"""The name of the package that is installed. The command and the import are `rekindle`."""

_MODULE = ("-m", "rekindle")
_REMOTE = r'(?m)^\[remote "origin"\]\s*$(?:\n\s+.*)*?\n\s+url\s*=\s*(\S+)'
_REPOSITORY = (
    r"(?:(?:git\+)?(?:https?|ssh)://(?:[^/@]*@)?|git@)([\w.-]+\.\w+)[/:]([\w.~-]+(?:/[\w.~-]+?)+)(?:\.git)?(?:@\w+)?/?"
)


@cache
def program() -> tuple[str, ...]:
    """The words that start this Rekindle again, where they are pasted on this computer.

    `rekindle` if that is what the shell would find; else the file as it was called, `python -m rekindle`, or the line
    of `uvx` or `pipx run`, whose environment is gone afterwards.
    """
    called = Path(sys.argv[0])
    if once := _once():
        return (*once, source(), "rekindle")
    if called.name == "__main__.py" and called.parent.name == "rekindle":
        return (shown(Path(sys.executable)), *_MODULE)
    if called.stem != "rekindle":
        return ("rekindle",)  # a test, a library's user: nobody typed it
    from rekindle.core import programs

    found = programs.which("rekindle")
    return ("rekindle",) if found and _same(Path(found), called) else (shown(called),)


def source(extra: str = "") -> str:
    """What pip is given to install this Rekindle again, on this computer: where it came from, else its name."""
    wanted = f"[{extra}]" if extra else ""
    where = _origin()
    if isinstance(where, Path):
        return f"{where}{wanted}"
    return f"{DISTRIBUTION}{wanted} @ {where}" if where else f"{DISTRIBUTION}{wanted}"


def elsewhere(given: str | None = None, extra: str = "") -> str:
    """The same for another computer: what `--rekindle` says, the address it was fetched from, or that of its clone.

    A name that the index does not have is never made up.
    """
    where = given or _origin()
    if isinstance(where, Path):
        where = _clone(where)
        if where is None:
            message = "another computer cannot tell where to get this Rekindle from: it was installed from a folder"
            hint = (
                f'name the address of its repository: `--rekindle "{DISTRIBUTION} @ git+https://HOST/OWNER/REPOSITORY"`'
            )
            raise UsageError(message, hint=hint)
    wanted = f"[{extra}]" if extra else ""
    if where is None:
        return f"{DISTRIBUTION}{wanted}=={__version__}"
    named = re.fullmatch(r"([A-Za-z0-9][\w.-]*)(?:\[([\w, -]*)\])?(\s*(?:[@=<>!~;].*)?)", where, re.DOTALL)
    if named and extra:
        extras = dict.fromkeys(filter(None, [*(named[2] or "").replace(" ", "").split(","), extra]))
        return f"{named[1]}[{','.join(extras)}]{named[3]}"
    if named or "://" not in where:
        return where if named else f"{where}{wanted}"
    return f"{DISTRIBUTION}{wanted} @ {where}"


def page() -> str | None:
    """Where this project lives: the page of its clone, of the address it came from, or the one its package names."""
    where = _origin()
    if isinstance(where, Path):
        return page_of_clone(where)
    if where:
        return _as_page(where)
    from importlib import metadata

    named = metadata.metadata(DISTRIBUTION).get_all("Project-URL") or []
    return next((each.partition(", ")[2] for each in named if each.startswith("Homepage, ")), None)


def page_of_clone(folder: Path) -> str | None:
    with contextlib.suppress(OSError, ValueError):
        found = re.search(_REMOTE, (folder / ".git" / "config").read_text(encoding="utf-8", errors="replace"))
        return _as_page(found[1]) if found else None
    return None


def _clone(folder: Path) -> str | None:
    """What git fetches this clone from, without a name or a token in it; at its commit if the server has that."""
    from rekindle.core.run import call

    page = page_of_clone(folder)
    if page is None:
        return None
    known = call(["git", "-C", folder, "branch", "--remotes", "--contains", "HEAD"])
    head = call(["git", "-C", folder, "rev-parse", "HEAD"])
    commit = f"@{head.out.strip()}" if head.ok and known.ok and known.out.strip() else ""
    return f"git+{page}{commit}"


def _as_page(address: str) -> str | None:
    """The page behind what git is given, without a name or a token in it; None: it is no repository of a server."""
    found = re.fullmatch(_REPOSITORY, address)
    return f"https://{found[1]}/{found[2]}" if found else None


def _origin() -> Path | str | None:
    """A folder or file of this computer, an address, or None: from the index."""
    from importlib import metadata  # takes longer than all of the start without it

    try:
        text = metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return Path(__file__).parents[3]  # started from its source
    if not text:
        return None
    import json

    where = json.loads(text)
    address = str(where.get("url", ""))
    if address.startswith("file:"):
        from urllib.parse import urlparse
        from urllib.request import url2pathname

        return Path(url2pathname(urlparse(address).path))
    fetched = where.get("vcs_info", {})
    commit = f"@{fetched['commit_id']}" if "commit_id" in fetched else ""
    return f"{fetched['vcs']}+{address}{commit}" if "vcs" in fetched else address


def with_extra(extra: str) -> Command:
    """What brings the packages of an extra into the environment of this Rekindle."""
    once = _once()
    if once:
        return Command(*once, source(extra), "rekindle")
    return pip("install", source(extra), python=sys.executable)


def need(extra: str, *packages: str) -> None:
    """Say what a verb lacks, and what brings it, before anything begins."""
    from importlib.util import find_spec

    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise MissingTool(f"this needs the package `{missing[0]}`", hint=f"install it: `{with_extra(extra)}`")


def _once() -> tuple[str, ...]:
    """`uvx` and `pipx run` make an environment for one call, in their caches."""
    parts = {part.lower() for part in Path(sys.prefix).parts}
    if "uv" in parts and {"archive-v0", "environments-v2", "builds-v0"} & parts:
        return ("uvx", "--from")
    if "pipx" in parts and ".cache" in parts | {part.lower() for part in Path(sys.prefix).parent.parts}:
        return ("pipx", "run", "--spec")
    return ()


def _same(one: Path, other: Path) -> bool:
    """The same script, with or without `.exe`, whichever way it is spelled."""
    return len({os.path.normcase(path.absolute().with_suffix("")) for path in (one, other)}) == 1 or (
        os.path.realpath(one) == os.path.realpath(other)
    )


def shown(path: Path) -> str:
    """How a program is called: from the current folder where it lies below it, `.venv\\Scripts\\rekindle`."""
    whole = path.absolute().with_suffix("") if paths.system() == "windows" else path.absolute()
    near = whole.relative_to(Path.cwd()) if whole.is_relative_to(Path.cwd()) else whole
    return str(near) if len(near.parts) > 1 else f".{os.sep}{near}"
