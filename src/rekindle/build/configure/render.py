"""An environment as text that a shell reads: `cmd`, PowerShell, POSIX `sh`. ASCII wherever the values are.

Values are quoted so that nothing in them is run. Lists are changed, not replaced: what else the reader has on PATH
stays, behind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from rekindle.build.configure.environment import MARK, Action, BuildEnvironment, VariableChange
from rekindle.core.command import ShellVariable, Word, in_sh, value_in_powershell
from rekindle.core.errors import BadInput

Known = tuple[tuple[str, str], ...]
"""(text, variable): where the text is the beginning of a path, the variable of the script stands for it."""


def render(environment: BuildEnvironment, shell: str) -> str:
    """The lines that make this environment in a shell that has none of it yet."""
    heads: dict[str, Callable[[BuildEnvironment], list[str]]] = {"cmd": _cmd, "ps1": _ps1, "sh": drop_function}
    return "\n".join([*heads[shell](environment), *change_lines(environment, shell)]) + "\n"


def change_lines(environment: BuildEnvironment, shell: str, known: Known = ()) -> list[str]:
    """The changes alone: each reason once, and in the paths the variables of a script where there are any."""
    made: dict[str, Callable[[VariableChange], list[str]]] = {
        "cmd": lambda change: _cmd_lines(change, known),
        "ps1": lambda change: _ps1_lines(change, known),
        "sh": lambda change: _sh_lines(change, ";" if environment.system == "windows" else ":", known),
    }
    lines: list[str] = []
    last = ""
    for change in environment.changes:
        if change.name == MARK:
            continue
        if change.why and change.why != last:
            lines.append(f"{'rem' if shell == 'cmd' else '#'} {one_line(change.why)}")
        last = change.why
        lines += made[shell](change)
    return lines


def split(value: str, known: Known) -> Iterator[tuple[bool, str]]:
    """A value as (is a variable, text): the beginning of every path in it that a variable of the script stands for."""
    if not known:
        yield False, value
        return
    names = dict(known)
    spelled = "|".join(re.escape(text) for text, _ in known)
    done = 0
    for match in re.finditer(rf"(?:^|(?<=[;:=]))(?:{spelled})(?=$|[;:\\/])", value):
        if match.start() > done:
            yield False, value[done : match.start()]
        yield True, names[match.group()]
        done = match.end()
    if done < len(value) or not value:
        yield False, value[done:]


def _cmd(environment: BuildEnvironment) -> list[str]:
    lines = ["@echo off", "rem Messages and file names in UTF-8", "chcp 65001 >nul"]
    return [*lines, f"call {environment.vcvars} || exit /b 1"] if environment.vcvars else lines


def _cmd_lines(change: VariableChange, known: Known) -> list[str]:
    value = cmd_value(change.value, known)
    if change.action is Action.UNSET:
        return [f'set "{change.name}="']
    if change.action is Action.SET:
        made = [f'if not exist "{value}" mkdir "{value}"'] if change.name in ("TEMP",) else []
        return [*made, f'set "{change.name}={value}"']
    if change.action is Action.PREPEND:
        return [f'set "{change.name}={value};%{change.name}%"']
    # Taken out wherever they stand. Variables are compared without regard to case, as Windows does with paths.
    # The last entry has no `;` behind it yet.
    lines = [f'set "{change.name}=%{change.name}%;"']
    # What has a `%` or `=` in it cannot be looked for this way; it stays, behind what is put in front.
    entries = [entry for entry in change.value.split(";") if not {"%", "="} & set(entry)]
    lines += [f'set "{change.name}=%{change.name}:{entry};=%"' for entry in entries]
    if change.action is Action.BEHIND:
        lines.append(f'set "{change.name}=%{change.name}%;{value}"')
    return lines


def cmd_value(value: str, known: Known = ()) -> str:
    """A value between quotes in a batch file: `%` is doubled; a quote or a line end cannot be in one."""
    if '"' in value or "\n" in value or "\r" in value:
        message = f"`{value[:60]}` cannot be written into a batch file"
        raise BadInput(message, hint="take the quotes and line ends out of it")
    return "".join(f"%{text}%" if named else text.replace("%", "%%") for named, text in split(value, known))


def _ps1(environment: BuildEnvironment) -> list[str]:
    lines = ["$ErrorActionPreference = 'Stop'", "chcp 65001 | Out-Null"]
    if environment.vcvars:
        # PowerShell cannot keep what a batch file sets: run it in cmd and take over the variables.
        line = environment.vcvars.replace("'", "''")
        lines += [
            "function Import-Vcvars($command) {",
            '  $set = cmd /d /c "$command >nul && set"',
            "  if ($LASTEXITCODE -ne 0) { throw 'vcvarsall.bat failed' }",
            "  foreach ($line in $set) {",
            "    $name, $value = $line -split '=', 2",
            '    if ($name) { Set-Item -LiteralPath "Env:$name" -Value $value }',
            "  }",
            "}",
            f"Import-Vcvars '{line}'",
        ]
    return lines


def _ps1_lines(change: VariableChange, known: Known) -> list[str]:
    name, value = f"$Env:{change.name}", ps1_text(change.value, known)
    if change.action is Action.UNSET:
        return [f"Remove-Item -LiteralPath 'Env:{change.name}' -ErrorAction SilentlyContinue"]
    if change.action is Action.SET:
        made = [f"New-Item -ItemType Directory -Force -Path {value} | Out-Null"] if change.name == "TEMP" else []
        return [*made, f"{name} = {value}"]
    if change.action is Action.PREPEND:
        return [f"{name} = {value} + ';' + {name}"]
    entries = ", ".join(ps1_text(entry, known) for entry in change.value.split(";"))
    lines = [f"{name} = (({name} -split ';') | Where-Object {{ $_ -notin @({entries}) }}) -join ';'"]
    if change.action is Action.BEHIND:
        lines.append(f"{name} = {name} + ';' + {value}")
    return lines


def ps1_text(value: str, known: Known = ()) -> str:
    return value_in_powershell(_word(value, known))


def drop_function(environment: BuildEnvironment) -> list[str]:
    """The function that the lines for `sh` call."""
    separator = ";" if environment.system == "windows" else ":"
    return [
        "# Takes one entry out of PATH.",
        "rk_drop() {",
        f"  PATH=$(printf '%s' \"$PATH\" | tr '{separator}' '\\n' | grep -vxF -- \"$1\" | paste -sd '{separator}' -)",
        "}",
    ]


def sh_text(value: str, known: Known = ()) -> str:
    return in_sh(_word(value, known))


def _word(value: str, known: Known) -> Word:
    pieces = tuple(ShellVariable(text) if named else text for named, text in split(value, known))
    return value if pieces == (value,) else pieces


def _sh_lines(change: VariableChange, separator: str, known: Known) -> list[str]:
    name, value = change.name, sh_text(change.value, known)
    if change.action is Action.UNSET:
        return [f"unset {name}"]
    if change.action is Action.SET:
        made = [f"mkdir -p {value}"] if name == "TMPDIR" else []
        return [*made, f"export {name}={value}"]
    if change.action is Action.PREPEND:
        return [f'export {name}={value}"${{{name}:+{separator}${name}}}"']
    lines = [f"rk_drop {in_sh(entry)}" for entry in change.value.split(separator)]
    if change.action is Action.BEHIND:
        lines.append(f"export PATH={in_sh((ShellVariable('PATH'), separator + change.value))}")
    return lines


def one_line(text: str) -> str:
    """A reason as a comment: nothing in it may end the comment or be read by the shell."""
    plain = re.sub(r"[&|<>^!\"]", "", re.sub(r"[\r\n]+", " ", text).replace("%", "percent"))
    return plain.translate({ord("\u2026"): "...", ord("\u00d7"): "x"}).encode("ascii", "replace").decode("ascii")
