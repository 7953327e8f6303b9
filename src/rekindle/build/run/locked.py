"""What a plan pins, held against what is here before anything is done: the commit of the source, the bundle's wheels.

The patches' hashes and the commit of the release are checked where the plan is read.
"""

from __future__ import annotations

from pathlib import Path

from rekindle.build.configure.request import BuildRequest
from rekindle.build.graft.sources import SUBMODULES
from rekindle.build.run import own_python
from rekindle.build.run.folders import source_of
from rekindle.core.command import Command
from rekindle.core.errors import BadInput, MissingTool, StepFailed
from rekindle.core.findings import Finding, Fix, passed, unverified
from rekindle.source import checkout, git, tree


def check(request: BuildRequest, bundle: Path | None) -> tuple[Finding, ...]:
    """Stops at what differs from the plan; says what could not be compared."""
    if bundle is not None:
        own_python.check_bundle(bundle, request.wheels)
    check_submodules(request)
    source = source_of(request)
    if request.commit is None or not (request.source or source.is_dir()):
        return ()
    found = tree.head(source)
    if found is None:
        text = f"`{source}` is not a git checkout: whether it is commit {request.commit[:12]} could not be checked"
        fix = Fix(text="leave `--source` out to build the pinned commit, or name a clone")
        return (unverified("commit", text, fix=fix),)
    if found != request.commit:
        message = f"`{source}` is at commit {found[:12]}, but the plan pins {request.commit[:12]}"
        raise BadInput(message, hint="check out the pinned commit, or write a plan for this release")
    return (_as_committed(source, found) if request.source else _passed(found),)


def check_submodules(request: BuildRequest) -> None:
    """A clone without them, or GitHub's .zip, would stop in configure, after everything was installed."""
    if not request.torch or not request.source:
        return
    source = Path(request.source)
    mark = checkout.mark_of(source)
    lacking = git.empty(source, mark.without if mark else ())
    if request.base is not None:
        lacking = tuple(name for name in lacking if name in SUBMODULES)
    if not lacking:
        return
    more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
    message = f"`{source}` lacks its submodules: `{lacking[0]}`{more} is empty"
    fill = Command("git", "-C", str(source), "submodule", "update", "--init", "--recursive")
    whole = "leave `--source` out: Rekindle brings the complete source"
    raise BadInput(message, hint=f"`{fill}`, or {whole}" if (source / ".git").exists() else whole)


def _as_committed(source: Path, commit: str) -> Finding:
    """A source of the user's own: nobody has edited its files since the commit."""
    try:
        edited = checkout.edited(source, commit)
    except (MissingTool, StepFailed) as error:
        text = f"the source is at commit {commit[:12]}; whether its files were edited could not be checked"
        return unverified("commit", text, fix=error.message)
    if edited:
        more = f" and {len(edited) - 1} more" if len(edited) > 1 else ""
        message = (
            f"the source was edited: `{edited[0]}`{more} of `{source}` is not as in {commit[:12]}, the plan's commit"
        )
        hint = "undo that (`git stash`), or leave `--source` out; a build file without `commit` builds what you edited"
        raise BadInput(message, hint=hint)
    return _passed(commit)


def _passed(commit: str) -> Finding:
    return passed("commit", f"the source is at the pinned commit {commit[:12]}")
