"""A build script for PowerShell 5.1 and later: CRLF, ASCII, every path between quotes or in a variable."""

from __future__ import annotations

import re

from rekindle.build.configure.render import change_lines, ps1_text
from rekindle.build.script import text as script_text
from rekindle.build.script.script import Call, Script, ScriptPlace, ScriptStep
from rekindle.build.script.standalone import BAD_WORD, HELPED
from rekindle.build.script.standalone_folder import NOT_OURS
from rekindle.build.script.text import comment, title
from rekindle.core.errors import BadInput


def text(script: Script, file: str) -> str:
    python = script_text.python_part(script, file)
    assert not any(line.startswith("'@") for line in python), "it would end the text early"
    lines = [
        *(comment(line) for line in script_text.head(script, file)),
        "#",
        "# Start it with `powershell -ExecutionPolicy Bypass -File build.ps1`: the variables that it sets end with it.",
        "",
        "$ErrorActionPreference = 'Stop'",
        "",
        *title("What you may change"),
        *(line for place in script.places for line in _place(script, place)),
        "",
        "# The PATH of the prompt: the finished wheel is tried with this one",
        "$Env:RK_PATH = $Env:PATH",
        "",
        *_functions(script),
        *title("The Python part of this script, which becomes a file of its own"),
        "$PythonPart = @'",
        *python,
        "'@",
        "",
        *_begin(),
    ]
    for step in script.steps:
        lines += _step(script, step)
    lines += [*title("The end"), "Invoke-Part $Env:RK_PYTHON @('finish')"]
    return script_text.checked(script, "\n".join(lines) + "\n")


def _place(script: Script, place: ScriptPlace) -> list[str]:
    value = ps1_text(place.value.rstrip("\\") if len(place.value) > 3 else place.value, script.before(place))
    spelled = f"(Join-Path $PSScriptRoot {value})" if place.beside else value
    return [comment(place.about), f"$Env:{place.variable} = {spelled}"]


def _functions(script: Script) -> list[str]:
    lines = [
        *title("How a command is run: through the Python part, and what it answers counts"),
        "function Stop-Build {",
        "  & $Env:RK_PYTHON $Env:RK_STEPS 'failed'",
        "  exit 1",
        "}",
        "function Invoke-Part([string]$Python, [string[]]$Words) {",
        "  & $Python $Env:RK_STEPS @Words",
        "  if ($LASTEXITCODE -ne 0) { Stop-Build }",
        "}",
        "# True: the step is to be done. False: it is done already.",
        "function Test-Step([string]$Name) {",
        "  & $Env:RK_PYTHON $Env:RK_STEPS 'begin' $Name | Out-Host",
        "  if ($LASTEXITCODE -eq 10) { return $false }",
        "  if ($LASTEXITCODE -eq 11) { exit 0 }",
        "  if ($LASTEXITCODE -ne 0) { Stop-Build }",
        "  return $true",
        "}",
    ]
    if script.environment.vcvars:
        lines += [
            "# PowerShell cannot keep what a batch file sets: it is run in cmd, and its variables are taken over.",
            "function Import-Vcvars([string]$Words) {",
            "  $Env:RK_VCVARS = $Env:RK_STUDIO + '\\VC\\Auxiliary\\Build\\vcvarsall.bat'",
            "  $lines = cmd /d /c ('call \"%RK_VCVARS%\" ' + $Words + ' >nul && set')",
            "  if ($LASTEXITCODE -ne 0) { Stop-Build }",
            "  foreach ($line in $lines) {",
            "    $name, $value = $line -split '=', 2",
            '    if ($name) { Set-Item -LiteralPath "Env:$name" -Value $value }',
            "  }",
            "}",
        ]
    return [*lines, ""]


def _begin() -> list[str]:
    return [
        *title("It begins"),
        "if (-not (Test-Path -LiteralPath $Env:RK_PYTHON)) {",
        "  Write-Output ('There is no Python at ' + $Env:RK_PYTHON)",
        "  Write-Output 'Install it there, or correct RK_PYTHON near the top of this file.'",
        "  exit 3",
        "}",
        "# File names and messages in UTF-8, whatever the console's code page is",
        "$Env:PYTHONUTF8 = '1'",
        "function Confirm-Started([int]$Code) {",
        f"  if ($Code -eq {HELPED}) {{ exit 0 }}",
        f"  if ($Code -eq {BAD_WORD}) {{ exit 2 }}",
        f"  if ($Code -eq {NOT_OURS}) {{ exit 4 }}",
        "  if ($Code -ne 0) {",
        "    Write-Output ('The Python at ' + $Env:RK_PYTHON + ' exited with code ' + $Code)",
        "    Write-Output 'Correct RK_PYTHON near the top of this file: it must be an interpreter, not a shim.'",
        "    exit 3",
        "  }",
        "}",
        "# The folder is looked at before anything is written into it; until then the Python part lies among your own",
        "# temporary files",
        "$Unpacked = [System.IO.Path]::GetTempFileName()",
        "[System.IO.File]::WriteAllText($Unpacked, $PythonPart)",
        "& $Env:RK_PYTHON -I -X utf8 $Unpacked 'folder' @args",
        "$Code = $LASTEXITCODE",
        "Remove-Item -LiteralPath $Unpacked",
        "Confirm-Started $Code",
        "$Env:RK_STEPS = $Env:RK_WORK + '\\steps.py'",
        "try { [System.IO.File]::WriteAllText($Env:RK_STEPS, $PythonPart) }",
        "catch {",
        "  Write-Output ('Cannot write to the folder of RK_WORK: ' + $Env:RK_WORK)",
        "  Write-Output 'Free some space there, or correct RK_WORK near the top of this file.'",
        "  exit 4",
        "}",
        "& $Env:RK_PYTHON $Env:RK_STEPS 'start' @args",
        "Confirm-Started $LASTEXITCODE",
        "",
    ]


def _step(script: Script, step: ScriptStep) -> list[str]:
    body = []
    if step.environment:
        if script.environment.vcvars:
            words = script.environment.vcvars.rpartition('"')[2].strip()
            body += ["# The compiler's own variables, for exactly this toolset", f"Import-Vcvars {ps1_text(words)}"]
        body += change_lines(script.environment, "ps1", script.known)
    for call in step.calls:
        body += _call(script, call)
    return [
        *title(f"{step.name}: {step.about[0]}"),
        *(comment(line) for line in step.about[1:]),
        f"if (Test-Step '{step.name}') {{",
        *(f"  {line}" for line in body),
        "}",
        "",
    ]


def _call(script: Script, call: Call) -> list[str]:
    spelled = [_word(word, script) for word in call.words]
    place = [f"Set-Location -LiteralPath {ps1_text(call.folder, script.known)}"] if call.folder else []
    python = ps1_text(call.python, script.known)
    line = f"Invoke-Part {python} @({', '.join(spelled)})"
    if len(line) > 110:
        return [*place, f"Invoke-Part {python} @(", *(f"  {word}," for word in spelled[:-1]), f"  {spelled[-1]}", ")"]
    return [*place, line]


def _word(word: str, script: Script) -> str:
    """One word of a command. PowerShell 5.1 puts quotes around one with a space, and changes nothing within."""
    if not word or re.search(r'["\r\n]|\s.*\\\Z', word):
        message = f"`{word[:60]}` cannot be written into a script for PowerShell"
        raise BadInput(message, hint="take quotes, line ends and a backslash at its end out of it")
    return ps1_text(word, script.known)
