"""Writes the reference pages from the code: every verb with its options, every exit code, the knowledge tables.

`--check` only says whether the committed pages are current.
"""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path

import click

import rekindle
from rekindle.cli.main import VERBS, cli
from rekindle.core import console, errors

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"
KNOWLEDGE = Path(rekindle.__file__).parent / "knowledge"


def pages() -> dict[str, str]:
    return {"cli.md": command_line(), "exit-codes.md": exit_codes(), "knowledge.md": knowledge(), "json.md": schemas()}


def command_line() -> str:
    context = click.Context(cli, info_name="rekindle", color=False, terminal_width=86)
    parts = ["# The command line\n", "Generated from the code.\n", f"```text\n{cli.get_help(context)}\n```\n"]
    parts.append("Every verb takes `-q`, `-v`, `--no-color`, `--shell` and `--help`, too: they are left out below.\n")
    for verb in VERBS:
        command = cli.get_command(context, verb)
        assert command is not None
        parts.append(f"## rekindle {verb}\n\n{_help(command, context, verb)}")
        if isinstance(command, click.Group):
            inner = click.Context(command, info_name=verb, parent=context, terminal_width=86)
            for name in command.list_commands(inner):
                below = command.get_command(inner, name)
                assert below is not None
                parts.append(f"### rekindle {verb} {name}\n\n{_help(below, inner, name)}")
    return "\n".join(parts)


def exit_codes() -> str:
    rows = [f"| {kind.exit_code} | `{kind.__name__}` | {(kind.__doc__ or '').strip()} |" for kind in errors.kinds()]
    head = [
        "# Exit codes",
        "",
        "Generated from the code. 0 means that all went well.",
        "",
        "| code | error | meaning |",
    ]
    return "\n".join([*head, "|---|---|---|", *rows]) + "\n"


def knowledge() -> str:
    lines = [
        "# The knowledge tables\n",
        "Generated from the data files. Every row has a source, a date and its evidence: `binary` (read off the real",
        "file), `script` or `notes` (not yet confirmed).\n",
        "| table | rows | binary | script | notes |",
        "|---|---|---|---|---|",
    ]
    for path in sorted(KNOWLEDGE.glob("*/*.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        rows = [row for value in data.values() if isinstance(value, list) for row in value]
        count = [sum(row.get("evidence") == kind for row in rows) for kind in ("binary", "script", "notes")]
        lines.append(
            f"| {path.relative_to(KNOWLEDGE).as_posix()} | {len(rows)} | {count[0]} | {count[1]} | {count[2]} |"
        )
    return "\n".join(lines) + "\n"


def schemas() -> str:
    lines = [
        "# JSON answers\n",
        "Every verb that gives an answer takes `--json`; keys are stable within a schema's number.\n",
    ]
    for path in sorted((Path(rekindle.__file__).parent / "schemas").glob("*.json")):
        schema = json.loads(path.read_text(encoding="utf-8"))
        body = schema.get("$defs", {}).get(schema.get("$ref", "").rpartition("/")[2], schema)
        keys = ", ".join(f"`{key}`" for key in body.get("properties", {}))
        lines.append(f"## {schema['title']}\n\nKeys: {keys}\n")
    return "\n".join(lines)


def _help(command: click.Command, parent: click.Context, name: str) -> str:
    """Without the options that all verbs share."""
    alone = copy.copy(command)
    shared = {option.name for option in cli.params}
    alone.params = [option for option in command.params if option.name not in shared]
    alone.add_help_option = False
    context = click.Context(alone, info_name=name, parent=parent, color=False, terminal_width=86)
    return f"```text\n{alone.get_help(context)}\n```\n"


def main() -> int:
    stale = []
    REFERENCE.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        path = REFERENCE / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if "--check" not in sys.argv:
                path.write_text(text, encoding="utf-8", newline="\n")
    print(f"{console.plural(len(stale), 'page')} {'out of date' if '--check' in sys.argv else 'written'}", *stale)
    return int(bool(stale) and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
