"""Types what the README and the guides print, as a reader would, and holds the answer against what they show.

    python -m tools.typed_docs readme           the README's blocks, in a fresh clone and a fresh environment
    python -m tools.typed_docs guides [FILE …]  every other `console` block, each in an empty folder
    python -m tools.typed_docs list             what is not typed, and why

A block is typed unless a comment in front of it says why it cannot be:

    <!-- not typed: needs a card -->

What a block needs is said the same way: files to copy into its folder, commands to run before, and the exit codes of
its commands where they are not all 0.

    <!-- typed: copy tests/machines/k40c-windows.json as machine.json; exit 0 5 -->
    <!-- typed: run rekindle plan --gpu K80 --os linux -o plan.toml -->

A command has to end with its code, and every line shown under it has to come, in that order; `…` stands for anything.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
_FOLDERS = ("guides", "concepts", "internals", "builds")
PAGES = ("README.md", "CONTRIBUTING.md", "docs/index.md", *(f"docs/{folder}/*.md" for folder in _FOLDERS))
LONGEST = 300.0
"""Seconds for one command of a guide."""
_COMMENT = re.compile(r"<!--\s*(not typed|typed):\s*(.*?)\s*-->")
_ENVIRONMENT = {"NO_COLOR": "1", "COLUMNS": "80", "PYTHONUTF8": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


@dataclass(frozen=True)
class Typed:
    """One command and what is shown under it."""

    line: int
    command: str
    shown: tuple[str, ...]


@dataclass(frozen=True)
class Block:
    page: Path
    commands: tuple[Typed, ...]
    reason: str = ""
    exits: tuple[int, ...] = ()
    copies: tuple[tuple[str, str], ...] = ()
    before: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(PROJECT).as_posix()}:{self.commands[0].line}"


def blocks(page: Path) -> Iterator[Block]:
    """The `console` blocks of a page, each with what the comment before it says."""
    said: tuple[str, str] | None = None
    inside: list[tuple[int, str]] | None = None
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if inside is not None:
            if line.startswith("```"):
                commands = tuple(_commands(inside))
                if commands:
                    yield _block(page, commands, said)
                inside, said = None, None
            else:
                inside.append((number, line))
        elif found := _COMMENT.search(line):
            said = (found[1], found[2])
        elif line.startswith("```"):
            inside = [] if line[3:].strip() == "console" else None
            if inside is None and line[3:].strip():
                said = None
        elif line.strip():
            said = None


def _commands(lines: Sequence[tuple[int, str]]) -> Iterator[Typed]:
    command, start, shown = "", 0, list[str]()
    for number, line in lines:
        if command.endswith("\\") and not shown:
            command = command[:-1] + line.strip()
        elif line.startswith("$ "):
            if command:
                yield Typed(start, command, tuple(shown))
            command, start, shown = line[2:], number, []
        elif command and line.strip():
            shown.append(line)
    if command:
        yield Typed(start, command, tuple(shown))


def _block(page: Path, commands: tuple[Typed, ...], said: tuple[str, str] | None) -> Block:
    if said is None:
        return Block(page, commands)
    if said[0] == "not typed":
        return Block(page, commands, reason=said[1] or "no reason is given")
    exits, copies, before = list[int](), list[tuple[str, str]](), list[str]()
    for part in filter(None, (part.strip() for part in said[1].split(";"))):
        words = shlex.split(part)
        if words[0] == "exit":
            exits = [int(word) for word in words[1:]]
        elif words[0] == "run":
            before.append(part.removeprefix("run").strip())
        elif words[0] == "copy":
            copies.append((words[1], words[3] if len(words) == 4 else Path(words[1]).name))
        else:
            message = (
                f"{page}: cannot read `{part}` in a comment; it says `exit N …`, `run COMMAND` or `copy FILE as NAME`"
            )
            raise SystemExit(message)
    return Block(page, commands, exits=tuple(exits), copies=tuple(copies), before=tuple(before))


def missing_lines(shown: Sequence[str], output: str) -> list[str]:
    """The lines shown that did not come, in their order. Trailing spaces do not count; `…` stands for anything."""
    came = iter([_plain(line) for line in output.splitlines()])
    absent = []
    for line in shown:
        wanted = _plain(line)
        if wanted.strip(" …") == "":
            continue
        pattern = ".*".join(re.escape(part) for part in wanted.split("…"))
        kept = list(came)
        at = next((index for index, have in enumerate(kept) if re.fullmatch(pattern, have)), None)
        if at is None:
            absent.append(line)
            came = iter(kept)
        else:
            came = iter(kept[at + 1 :])
    return absent


def _plain(line: str) -> str:
    return line.rstrip()


def without_remark(command: str) -> str:
    """A command without the `# remark` behind it: cmd and interactive zsh would take it for arguments."""
    return re.sub(r"\s{2,}#\s.*$", "", command)


def type_block(block: Block, search_path: str) -> list[str]:
    """Type the commands of a block in an empty folder; what went wrong, a sentence each."""
    faults = []
    with tempfile.TemporaryDirectory(prefix="typed-") as folder:
        for source, name in block.copies:
            target = Path(folder) / name
            target.parent.mkdir(parents=True, exist_ok=True)
            origin = PROJECT / source
            (shutil.copytree if origin.is_dir() else shutil.copy)(origin, target)
        env = {**os.environ, **_ENVIRONMENT, "PATH": search_path, "REKINDLE_CACHE": str(Path(folder) / ".cache")}
        env["PYTHONPATH"] = str(PROJECT / "src")
        for command in block.before:
            _type(command, Path(folder), env, LONGEST).check_returncode()
        for turn, each in enumerate(block.commands):
            done = _type(without_remark(each.command), Path(folder), env, LONGEST)
            where = f"{block.page.relative_to(PROJECT).as_posix()}:{each.line}: `{each.command}`"
            wanted = block.exits[turn] if turn < len(block.exits) else 0
            if done.returncode != wanted:
                said = (done.stdout + done.stderr).strip().splitlines()[-3:]
                faults.append(f"{where} ended with {done.returncode}, not {wanted}: {' / '.join(said)}")
            absent = missing_lines(each.shown, done.stdout + done.stderr)
            faults += [f"{where} did not print: {line}" for line in absent[:3]]
    return faults


def _type(command: str, folder: Path, env: dict[str, str], seconds: float) -> subprocess.CompletedProcess[str]:
    """In bash, as a person would type it: what the docs print is a line of a shell."""
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=seconds,
        check=False,
    )


@contextlib.contextmanager
def _served(folder: Path) -> Iterator[str]:
    """The address of this repository, as a web server shows it that knows nothing of git."""
    bare = folder / "served" / "rekindle.git"
    subprocess.run(["git", "clone", "--quiet", "--bare", str(PROJECT), str(bare)], check=True)
    subprocess.run(["git", "update-server-info"], cwd=bare, check=True)
    handler = functools.partial(_Quiet, directory=str(bare.parent))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/rekindle.git"
        server.shutdown()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


def type_readme() -> int:
    """The README's blocks in turn, verbatim: in one shell, in a clone from an address, with an environment of only
    Python.

    A machine without a card ends `rekindle` with its own code for that (5 or 9), which is no failure of the command.
    """
    typed = [block for block in blocks(PROJECT / "README.md") if not block.reason]
    lines = [each.command for block in typed for each in block.commands]
    with tempfile.TemporaryDirectory(prefix="readme-") as folder, _served(Path(folder)) as address:
        lines = [f"git clone {address} rekindle", "cd rekindle", *lines]
        bare = Path(folder) / "bare"
        subprocess.run([sys.executable, "-m", "venv", str(bare)], check=True)
        # What a fresh machine has: its Python as `python`, and the system's programs; nothing of this checkout.
        env = {
            key: value
            for key, value in os.environ.items()
            if key not in ("VIRTUAL_ENV", "PYTHONPATH", "PYTEST_ADDOPTS") and not key.startswith("REKINDLE_")
        }
        here = str(Path(sys.executable).parent)
        rest = [part for part in os.environ["PATH"].split(os.pathsep) if part != here]
        env |= {**_ENVIRONMENT, "PATH": os.pathsep.join([str(bare / "bin"), *rest])}
        script = "set -o pipefail\n"
        for line in lines:
            script += f"echo {shlex.quote('$ ' + line)}\n{without_remark(line)}\ncode=$?\n"
            allowed = "0|5|9" if without_remark(line).endswith("rekindle") else "0"
            script += f'case $code in {allowed}) ;; *) echo "FAIL: exit code $code"; exit 1 ;; esac\n'
        return subprocess.run(["bash", "-c", script], cwd=folder, env=env, check=False).returncode


def pages(named: Sequence[str] = ()) -> list[Path]:
    return sorted({path for pattern in named or PAGES for path in PROJECT.glob(pattern)})


def type_guides(named: Sequence[str]) -> int:
    found = [block for page in pages(named) for block in blocks(page)]
    # The README's are typed in turn, in a clone.
    runnable = [block for block in found if not block.reason and block.page.name != "README.md"]
    search_path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    failed = 0
    for block in runnable:
        faults = type_block(block, search_path)
        failed += bool(faults)
        print(f"{'FAIL' if faults else 'PASS'}  {block.name}", *(f"      {fault}" for fault in faults), sep="\n")
    commands = sum(len(block.commands) for block in runnable)
    left = sum(len(block.commands) for block in found if block.reason)
    print(f"typed {commands} commands; {left} are not typed (`python -m tools.typed_docs list` says why)")
    print(f"{len(runnable) - failed} passed, {failed} failed")
    return 1 if failed or not runnable else 0


def show_untyped() -> int:
    for block in (block for page in pages() for block in blocks(page) if block.reason):
        print(f"{block.name}: {block.reason}", *(f"    {each.command}" for each in block.commands), sep="\n")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["readme", "guides", "list"])
    parser.add_argument("files", nargs="*", help="pages, as patterns below the project")
    options = parser.parse_args()
    if options.what == "readme":
        return type_readme()
    return show_untyped() if options.what == "list" else type_guides(options.files)


if __name__ == "__main__":
    sys.exit(main())
