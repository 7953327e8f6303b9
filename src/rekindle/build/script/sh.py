"""A build script for bash: ASCII, every path quoted, as `shellcheck` wants it."""

from __future__ import annotations

import re

from rekindle.build.configure.render import change_lines, drop_function, sh_text
from rekindle.build.script import text as script_text
from rekindle.build.script.script import Call, Script, ScriptPlace, ScriptStep
from rekindle.build.script.standalone import BAD_WORD, HELPED
from rekindle.build.script.standalone_folder import NOT_OURS
from rekindle.build.script.text import comment, title
from rekindle.core.command import ShellVariable, in_sh

_END = "END_OF_PYTHON"


def text(script: Script, file: str) -> str:
    lines = [
        "#!/usr/bin/env bash",
        *(comment(line) for line in script_text.head(script, file)),
        "",
        "set -u",
        "# The PATH of the shell: the finished wheel is tried with this one",
        'export RK_PATH="$PATH"',
        *_here(script),
        "",
        *title("What you may change"),
        *(line for place in script.places for line in _place(script, place)),
        "",
        *_functions(),
        *drop_function(script.environment),
        "",
        *title("The Python part of this script, which becomes a file of its own"),
        "python_part() {",
        f"  cat <<'{_END}'",
        *script_text.python_part(script, file),
        _END,
        "}",
        "",
        *title("It begins"),
        'if [ ! -x "$RK_PYTHON" ]; then',
        "  printf 'There is no Python at %s: install it there, or correct RK_PYTHON above.\\n' \"$RK_PYTHON\" >&2",
        "  exit 3",
        "fi",
        "export PYTHONUTF8=1",
        "started() {",
        "  case $1 in",
        "    0) ;;",
        f"    {HELPED}) exit 0 ;;",
        f"    {BAD_WORD}) exit 2 ;;",
        f"    {NOT_OURS}) exit 4 ;;",
        "    *)",
        '      printf \'The Python at %s exited with code %s before the first step.\\n\' "$RK_PYTHON" "$1" >&2',
        "      printf 'Correct RK_PYTHON above: it must be an interpreter, not a shim.\\n' >&2",
        "      exit 3",
        "      ;;",
        "  esac",
        "}",
        "# The folder is looked at before anything is written into it",
        'python_part | "$RK_PYTHON" -I -X utf8 - folder "$@"',
        "started $?",
        'export RK_STEPS="$RK_WORK/steps.py"',
        'if ! python_part >"$RK_STEPS"; then',
        "  printf 'Cannot write to %s: free some space there, or correct RK_WORK above.\\n' \"$RK_WORK\" >&2",
        "  exit 4",
        "fi",
        '"$RK_PYTHON" "$RK_STEPS" start "$@"',
        "started $?",
        "",
    ]
    for step in script.steps:
        lines += _step(script, step)
    lines += [*title("The end"), 'part "$RK_PYTHON" finish']
    return script_text.checked(script, "\n".join(lines) + "\n")


def _here(script: Script) -> list[str]:
    if not any(place.beside for place in script.places):
        return []
    return ['RK_HERE=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd) || exit 1']


def _place(script: Script, place: ScriptPlace) -> list[str]:
    value = place.value.rstrip("/") or "/"
    spelled = in_sh((ShellVariable("RK_HERE"), f"/{value}")) if place.beside else sh_text(value, script.before(place))
    return [comment(place.about), f"export {place.variable}={spelled}"]


def _functions() -> list[str]:
    return [
        *title("How a command is run: through the Python part, and what it answers counts"),
        "failed() {",
        '  "$RK_PYTHON" "$RK_STEPS" failed',
        "  exit 1",
        "}",
        "part() {",
        "  local python=$1",
        "  shift",
        '  "$python" "$RK_STEPS" "$@" || failed',
        "}",
        "# True: the step is to be done.",
        "begin() {",
        '  "$RK_PYTHON" "$RK_STEPS" begin "$1"',
        "  case $? in",
        "    0) return 0 ;;",
        "    10) return 1 ;;",
        "    11) exit 0 ;;",
        "    *) failed ;;",
        "  esac",
        "}",
    ]


def _step(script: Script, step: ScriptStep) -> list[str]:
    body = change_lines(script.environment, "sh", script.known) if step.environment else []
    for call in step.calls:
        body += _call(script, call)
    return [
        *title(f"{step.name}: {step.about[0]}"),
        *(comment(line) for line in step.about[1:]),
        f"if begin {step.name}; then",
        *(f"  {line}" for line in body),
        "fi",
        "",
    ]


def _call(script: Script, call: Call) -> list[str]:
    words = [sh_text(word, script.known) for word in call.words]
    place = [f"cd -- {sh_text(call.folder, script.known)} || failed"] if call.folder else []
    python = sh_text(call.python, script.known)
    line = f"part {python} {' '.join(words)}"
    if len(line) > 110:
        return [*place, f"part {python} {words[0]} {words[1]} \\", *_folded(words[2:])]
    return [*place, line]


def _folded(words: list[str]) -> list[str]:
    """As many words to a line as a person likes to read."""
    lines = [""]
    for word in words:
        if len(lines[-1]) + len(word) > 96:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return [re.sub(r"^", "  ", line) + (" \\" if number + 1 < len(lines) else "") for number, line in enumerate(lines)]
