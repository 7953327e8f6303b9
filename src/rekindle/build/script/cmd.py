"""A build script for `cmd`: CRLF, ASCII, no blocks in parentheses, every path in a variable between quotes.

`call` doubles carets and reads percent signs a second time, so nothing with a path in it goes through it as text:
`call "%%NAME%%"` lets the second reading find the path, after which nothing is read again.
"""

from __future__ import annotations

import re
from functools import partial

from rekindle.build.configure.render import Known, change_lines, cmd_value
from rekindle.build.script import text as script_text
from rekindle.build.script.script import Call, Script, ScriptPlace, ScriptStep
from rekindle.build.script.standalone import BAD_WORD, HELPED
from rekindle.build.script.standalone_folder import NOT_OURS

_rem, _title = partial(script_text.comment, mark="rem"), partial(script_text.title, mark="rem")
_PLAIN = re.compile(r"[A-Za-z0-9_.,:+/@-]+\Z")


def text(script: Script, file: str) -> str:
    lines = ["@echo off", *(_rem(line) for line in script_text.head(script, file)), ""]
    lines += [
        "setlocal EnableExtensions DisableDelayedExpansion",
        'set "RK_SELF=%~f0"',
        'set "RK_HERE=%~dp0"',
        _rem("The PATH of the prompt: the finished wheel is tried with this one"),
        'set "RK_PATH=%PATH%"',
        "",
        *_title("What you may change"),
        *(line for place in script.places for line in _place(script, place)),
        "",
        *_begin(),
    ]
    for number, step in enumerate(script.steps):
        following = script.steps[number + 1].name if number + 1 < len(script.steps) else "finish"
        lines += _step(script, step, following)
    lines += _ending()
    lines += [_rem(script_text.PYTHON_BEGINS), *script_text.python_part(script, file)]
    return script_text.checked(script, "\n".join(lines) + "\n")


def _place(script: Script, place: ScriptPlace) -> list[str]:
    value = place.value.rstrip("\\") if len(place.value) > 3 else place.value
    spelled = cmd_value(value, script.before(place))
    return [_rem(place.about), f'set "{place.variable}={"%RK_HERE%" if place.beside else ""}{spelled}"']


def _begin() -> list[str]:
    part = "import os; t = open(os.environ['RK_SELF']).read().split('rem ' + os.environ['RK_CUT'])[1]; "
    write = "open(os.environ['RK_STEPS'], 'w').write(t)"
    return [
        'if exist "%RK_PYTHON%" goto :unpack',
        "echo There is no Python where RK_PYTHON of this script says:",
        'echo   "%RK_PYTHON%"',
        "echo Install it there, or correct RK_PYTHON near the top of this file.",
        "exit /b 3",
        ":unpack",
        'set "RK_STEPS=%RK_WORK%\\steps.py"',
        f'set "RK_CUT={script_text.PYTHON_BEGINS}"',
        "rem File names and messages in UTF-8, whatever the console's code page is",
        'set "PYTHONUTF8=1"',
        _rem("The Python part at the end of this file becomes a file of its own"),
        _rem("once the folder that it is written into has been looked at"),
        f'"%RK_PYTHON%" -I -X utf8 -c "{part}exec(t)" folder %*',
        f"if %ERRORLEVEL%=={HELPED} exit /b 0",
        f"if %ERRORLEVEL%=={BAD_WORD} exit /b 2",
        f"if %ERRORLEVEL%=={NOT_OURS} exit /b 4",
        "if not %ERRORLEVEL%==0 goto :unstarted",
        f'"%RK_PYTHON%" -c "{part}{write}"',
        "if not %ERRORLEVEL%==0 goto :unwritable",
        '"%RK_PYTHON%" "%RK_STEPS%" start %*',
        f"if %ERRORLEVEL%=={BAD_WORD} exit /b 2",
        "if %ERRORLEVEL%==0 goto :steps",
        ":unstarted",
        "echo The Python of RK_PYTHON failed before the first step:",
        'echo   "%RK_PYTHON%"',
        "echo Correct RK_PYTHON near the top of this file: it must be an interpreter, not a shim.",
        "exit /b 3",
        ":unwritable",
        "echo Cannot write to the folder of RK_WORK:",
        'echo   "%RK_WORK%"',
        "echo Free some space there, or correct RK_WORK near the top of this file.",
        "exit /b 4",
        ":steps",
        "",
    ]


def _step(script: Script, step: ScriptStep, following: str) -> list[str]:
    lines = [
        *_title(f"{step.name}: {step.about[0]}"),
        *(_rem(line) for line in step.about[1:]),
        f":{step.name}",
        f'"%RK_PYTHON%" "%RK_STEPS%" begin {step.name}',
        f"if %ERRORLEVEL%==10 goto :{following}",
        "if %ERRORLEVEL%==11 goto :enough",
        "if not %ERRORLEVEL%==0 goto :failed",
    ]
    if step.environment:
        lines += _environment(script)
    for call in step.calls:
        lines += [*_call(script, call), "if not %ERRORLEVEL%==0 goto :failed"]
    return [*lines, ""]


def _environment(script: Script) -> list[str]:
    lines = []
    if script.environment.vcvars:
        words = script.environment.vcvars.rpartition('"')[2].strip()
        lines += [
            _rem("The compiler's own variables, for exactly this toolset"),
            'set "RK_VCVARS=%RK_STUDIO%\\VC\\Auxiliary\\Build\\vcvarsall.bat"',
            f'call "%%RK_VCVARS%%" {words}',
            "if not %ERRORLEVEL%==0 goto :failed",
        ]
    lines += [_rem("Quotes in PATH would end ours"), 'set "PATH=%PATH:"=%"']
    return [*lines, *change_lines(script.environment, "cmd", script.known)]


def _call(script: Script, call: Call) -> list[str]:
    lines = []
    if call.folder:
        lines += [f"cd /d {word(call.folder, script.known)}", "if not %ERRORLEVEL%==0 goto :failed"]
    python = "%RK_PYTHON%" if call.python == _value(script, "RK_PYTHON") else cmd_value(call.python, script.known)
    words = " ".join(word(each, script.known) for each in call.words)
    return [*lines, f'"{python}" "%RK_STEPS%" {words}']


def _value(script: Script, variable: str) -> str:
    return next(place.value for place in script.places if place.variable == variable)


def word(word: str, known: Known) -> str:
    """One word of a command. Between quotes `cmd` reads nothing but `%`."""
    spelled = cmd_value(word, known)
    if spelled == word and _PLAIN.match(word):
        return word
    # Before a closing quote a backslash would take the quote for itself: each is written twice there.
    ending = len(spelled) - len(spelled.rstrip("\\"))
    return f'"{spelled}{ending * chr(92)}"'


def _ending() -> list[str]:
    return [
        *_title("The end"),
        ":finish",
        '"%RK_PYTHON%" "%RK_STEPS%" finish',
        "if not %ERRORLEVEL%==0 goto :failed",
        ":enough",
        "exit /b 0",
        ":failed",
        '"%RK_PYTHON%" "%RK_STEPS%" failed',
        "exit /b 1",
        "",
    ]
