"""The answering verbs as tools of the Model Context Protocol. Nothing here writes, installs or builds.

Assistants tell people to install a CUDA version every day; here they can ask.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.tools import Tool

from rekindle import __version__, api
from rekindle.core import codec, files
from rekindle.core.errors import NotFound, RekindleError, UsageError, did_you_mean
from rekindle.core.patience import patience
from rekindle.core.redact import secrets, without_secrets
from rekindle.core.untrusted import on_another_computer
from rekindle.diagnose.source import is_message

_ABOUT = (
    "Ask before you advise on PyTorch and NVIDIA GPUs. `plan` gives the one command that installs a PyTorch with code "
    "for a GPU; repeat its commands as they are. What an answer calls UNVERIFIED is not known."
)

# Every wheel and build with its evidence is 200 kB: more than an assistant reads of an answer.
_ENOUGH = 3


def server(folders: Sequence[Path] = ()) -> MCPServer:
    """Files are read below `folders` alone: your home and the current folder when none is named."""
    allowed = tuple(folder.resolve() for folder in folders or (Path.home(), Path.cwd()))

    def here(name: str) -> Path:
        return _here(name, allowed)

    def below(ask: Any) -> dict[str, Any]:
        """A folder's links and what a script names may lead elsewhere: nothing there is opened."""
        with files.only_below(allowed):
            return _answer(ask)

    def read(given: str) -> Path | bytes:
        """The text of a log as bytes, which nobody takes for a path."""
        return given.encode("utf-8", "replace") if is_message(given) else here(given)

    def patiently(place: Any, ask: Callable[[Any], Any]) -> Any:
        with patience([place] if isinstance(place, Path) else ()):
            return ask(place)

    tools: list[Tool] = []

    def tool(function: Callable[..., dict[str, Any]]) -> None:
        @wraps(function)
        async def asked(**given: Any) -> dict[str, Any]:
            return function(**given)  # in the main thread, where patience is heard

        made = _OurTool.from_function(asked)
        made.parameters["additionalProperties"] = False
        tools.append(made)

    @tool
    def plan(gpu: str, os: str, python: str = "", driver: str = "", torch: str = "") -> dict[str, Any]:
        """Which PyTorch for this GPU ("GTX 1080 Ti") on `windows` or `linux`, and the commands to run.

        Of `routes` and `rejections`, which are many, the first stand here; `left_out` counts the others.
        """
        found = _answer(
            lambda: api.plan(gpus=[gpu], os=os, python=python or None, driver=driver or None, torch=torch or None)
        )
        many = {name: rows for name in ("routes", "rejections") if len(rows := found.get(name, ())) > _ENOUGH}
        short = {name: rows[:_ENOUGH] for name, rows in many.items()}
        left_out = {name: len(rows) - _ENOUGH for name, rows in many.items()}
        return {**found, **short, "left_out": left_out} if many else found

    @tool
    def gpu(name: str) -> dict[str, Any]:
        """What is true of a GPU: compute capability, drivers, toolkits, wheels that serve it, what it lacks."""
        return _answer(lambda: api.gpu(name))

    @tool
    def diagnose(log: str, gpu: str = "", os: str = "") -> dict[str, Any]:
        """What went wrong in a build, install or import log. `log` is a path on this computer, or the text itself.

        Where no cause is known, `entities`, `judged` and `unexplained` hold what was read, what fits and the lines that
        matter.
        """
        return below(
            lambda: patiently(read(log), lambda it: api.diagnose(it, gpus=[gpu] if gpu else [], os=os or None))
        )

    @tool
    def inspect(path: str) -> dict[str, Any]:
        """Which GPUs a wheel or library on this computer serves, and what it needs to load."""
        return below(lambda: api.inspect(here(path)))

    @tool
    def review(script: str, gpu: str = "", torch: str = "", os: str = "") -> dict[str, Any]:
        """What is wrong with a build script (.bat, .ps1, .sh, Dockerfile, workflow) on this computer; it is not run."""

        def ask(place: Path) -> Any:
            return api.review([place], gpus=[gpu] if gpu else [], torch=torch or None, os=os or None)

        return below(lambda: patiently(here(script), ask))

    @tool
    def doctor() -> dict[str, Any]:
        """What this computer has, what is wrong, and what will work."""
        return _answer(api.doctor)

    return MCPServer("rekindle", version=__version__, instructions=_ABOUT, tools=tools)


class _OurTool(Tool):
    """An argument that it does not have is refused: without it, it would answer another question."""

    async def run(self, arguments: dict[str, Any], context: Any, convert_result: bool = False) -> Any:
        given = {name: value for name, value in arguments.items() if value is not None}
        found = _answer(lambda: self._checked(given)) or await super().run(given, context)
        if not convert_result:
            return found
        answer = self.fn_metadata.convert_result(found)
        return answer.model_copy(update={"is_error": True}) if "error" in found else answer

    def _checked(self, given: dict[str, Any]) -> dict[str, Any]:
        known = self.parameters["properties"]
        hint = f"its arguments are {', '.join(f'`{name}`' for name in known)}" if known else "it takes none"
        for name, value in given.items():
            if name not in known:
                raise UsageError(f"`{self.name}` has no argument `{name[:60]}`", hint=did_you_mean(name, known) + hint)
            if not isinstance(value, str):
                raise UsageError(f"`{name}` of `{self.name}` is a text", hint="write it in quotes, one at a time")
        if missing := [name for name in self.parameters.get("required", ()) if name not in given]:
            raise UsageError(f"`{self.name}` needs `{missing[0]}`", hint=hint)
        return {}


def _answer(ask: Any) -> dict[str, Any]:
    """The value's JSON; an error as an answer with its hint, so that the assistant can act on it."""
    try:
        found: dict[str, Any] = without_secrets(codec.to_builtins(ask()))
    except RekindleError as error:
        return {"error": secrets(error.message), "hint": secrets(error.hint or ""), "code": error.exit_code}
    return found


def _here(name: str, allowed: Sequence[Path]) -> Path:
    """A file or folder of this computer, below what the user allowed. Not an address, which an assistant could be
    talked into: Windows logs on to the host of `\\\\host\\share` before anything is read. Not a pipe or a device, which
    has no end; not standard input, which is the assistant's own.
    """
    shared = on_another_computer(name)
    try:
        # What is opened is what was looked at: a link may be turned meanwhile.
        path = Path() if shared else Path(name).resolve()
        inside = not shared and any(path.is_relative_to(folder) for folder in allowed)
        inside = inside and (path.is_file() or path.is_dir())
    except (OSError, ValueError, RuntimeError):
        inside = False
    if "://" in name or not inside:
        message = f"there is no file or folder `{name[:200]}` below {' or '.join(f'`{folder}`' for folder in allowed)}"
        raise NotFound(message, hint="name a file by its complete path; `rekindle mcp --folder DIR` allows others")
    return path
