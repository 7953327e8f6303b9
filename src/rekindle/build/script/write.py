"""`rekindle build --script FILE`: the plan as a script, in the shell that the file's name says."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from rekindle.build.command import look
from rekindle.build.configure import jobs, options, request
from rekindle.build.script import cmd, ps1, script, sh
from rekindle.core import files, paths
from rekindle.core.errors import UsageError
from rekindle.core.findings import Finding

_KINDS: dict[str, tuple[str, Callable[[script.Script, str], str], str]] = {
    ".cmd": ("windows", cmd.text, "\r\n"),
    ".ps1": ("windows", ps1.text, "\r\n"),
    ".sh": ("linux", sh.text, "\n"),
}


class ScriptReport(msgspec.Struct, frozen=True, kw_only=True):
    schema: str = "rekindle.build-script/1"
    path: str
    kind: str
    """`cmd`, `ps1` or `sh`."""
    system: str
    title: str
    work: str
    """Where it builds."""
    version: str
    """What the wheel will call itself."""
    steps: tuple[str, ...]
    findings: tuple[Finding, ...] = ()
    written: bool = True


def write(plan: Path, *, machine: Path | None, dry_run: bool, asked: Mapping[str, Any]) -> ScriptReport:
    path = Path(asked["script"])
    kind = _KINDS.get(path.suffix.lower())
    if kind is None:
        message = f"`{path.name}` does not say for which shell the script is meant to be"
        raise UsageError(message, hint="call it `build.cmd`, `build.ps1` (Windows) or `build.sh` (Linux)")
    steps = "the script itself takes `--from STEP` and `--until STEP`"
    for name, key, hint in (
        ("--from", "start", steps),
        ("--until", "until", steps),
        ("--clean", "clean", "delete the script's work folder to begin anew"),
        (
            "--auto-fix",
            "auto_fix",
            "what can fix a build on its way is not in a script; `rekindle diagnose` reads its logs",
        ),
        (
            "--cache",
            "launcher",
            "to compile through sccache, add `CMAKE_CXX_COMPILER_LAUNCHER` where the script sets `CXX`",
        ),
    ):
        if asked.get(key) and asked[key] != "none":
            message = f"`{name}` does not go with `--script`"
            raise UsageError(message, hint=hint)
    made, work = _composed(plan, machine, asked)
    system, text, newline = kind
    if made.system != system:
        fitting = "build.sh" if made.system == "linux" else "build.cmd` or `build.ps1"
        message = f"this plan is for {made.system.capitalize()}, `{path.name}` is a script for {system.capitalize()}"
        raise UsageError(message, hint=f"call it `{fitting}`")
    body = text(made, path.name)
    if not dry_run:
        files.write_text(path, body, newline=newline)
        if path.suffix.lower() == ".sh":
            with contextlib.suppress(OSError):
                path.chmod(path.stat().st_mode | 0o755)
    return ScriptReport(
        path=str(path),
        kind=path.suffix.lower()[1:],
        system=made.system,
        title=made.title,
        work=work,
        version=made.version,
        steps=tuple(step.name for step in made.steps),
        findings=made.options.findings,
        written=not dry_run,
    )


def text(report: ScriptReport) -> str:
    """What a person sees."""
    done = "wrote" if report.written else "would write"
    where = "on that computer" if report.system != paths.system() else "here"
    return "\n".join(
        [
            f"{done} `{report.path}`: {report.title}",
            f"steps   {', '.join(report.steps)}",
            f"wheel   {report.version}, in {report.work}",
            f"Run it {where}; `{Path(report.path).name} --help` says how. It needs no Rekindle.",
        ]
    )


def _composed(plan: Path, machine: Path | None, asked: Mapping[str, Any]) -> tuple[script.Script, str]:
    wanted = request.read(plan)
    if asked.get("source"):
        source = Path(asked["source"])
        wanted = msgspec.structs.replace(wanted, source=str(source if machine else source.resolve()))
    seen = look(machine)
    # A source that another computer's plan names is there, not here.
    resolved = request.resolve(wanted, seen, here=None if machine else plan.resolve().parent)
    chosen = options.resolve(resolved, options.parse(asked["pairs"]), allow_unknown=asked["allow_unknown"])
    given = asked["work"]
    work = (given.as_posix() if resolved.system == "linux" else str(given)) if given else _work(resolved)
    if not resolved.paths.isabs(work):
        work = str(Path(work).resolve())
    many = asked["jobs"] or jobs.computed(seen, cuda=resolved.cuda is not None)
    return script.compose(resolved, chosen, work=work, jobs=many, beside=machine is not None), work


def _work(resolved: request.BuildRequest) -> str:
    """Short, and of its own: what a script does must not be mixed with what Rekindle itself keeps in its cache."""
    name = f"{resolved.name}-{resolved.release or resolved.version or '0'}"
    return f"C:\\rk\\{name}" if resolved.system == "windows" else f"/var/tmp/rk/{name}"
