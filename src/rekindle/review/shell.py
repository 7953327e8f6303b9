"""The shell itself: quotes, continuation, comments, paths with spaces, and whether anybody looks at failures."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rekindle.core.findings import State
from rekindle.review.remark import Remark
from rekindle.review.said import Said
from rekindle.review.script import Dialect, Script, Statement, open_quote

_WORK = frozenset({"cmake", "ninja", "python", "python3", "pip", "pip3", "git", "nvcc", "msbuild", "make", "py"})


def check(said: Said) -> Iterator[Remark]:
    script = said.script
    for item in script.statements:
        yield from _lines(script, item)
    for item in script.commands:
        yield from _quotes(script, item)
        if script.dialect is Dialect.BATCH:
            yield from _batch(script, item)
        elif script.dialect is Dialect.POWERSHELL:
            yield from _powershell(script, item)
        else:
            yield from _posix(script, item)
        yield from _placeholders(script, item)
    yield from _failures(said)
    if script.dialect is Dialect.SHELL and script.ends == "\r\n":
        yield _at(
            script,
            1,
            "line-ends",
            State.FAIL,
            "the lines end in CR LF",
            "the shell takes the CR for part of each word",
            "POSIX shell grammar",
        )


def _lines(script: Script, item: Statement) -> Iterator[Remark]:
    sign = script.dialect.continues
    for number in item.wrong:
        line = script.lines[number - 1].rstrip()
        yield _at(
            script,
            number,
            "continuation",
            State.FAIL,
            f"`{line[-1]}` continues no line in {script.dialect.value}: the command ends here",
            f"the lines below are taken for commands of their own; the sign is `{sign}`",
            f"grammar of {script.dialect.value}",
            line[:-1] + sign,
        )
    for index, line in enumerate(item.lines):
        if not item.comment and re.search(r"[\^`]\s+$" if sign != "\\" else r"\\\s+$", line) and sign in line[-4:]:
            yield _at(
                script,
                item.line + index,
                "continuation-space",
                State.FAIL,
                "there is a space after the continuation sign",
                "the sign then continues nothing",
                f"grammar of {script.dialect.value}",
                line.rstrip(),
            )


def _quotes(script: Script, item: Statement) -> Iterator[Remark]:
    # Where a line is continued, a quote left open on it swallows the sign; two such lines look balanced together.
    # `%PATH:"=%` takes quotes out of a value; the one in it opens nothing.
    # What opens a here-string in PowerShell opens no other either.
    shown = [re.sub(r"""%\w+:"=|@['"]$""", "%", each.rstrip()) for each in (item.text, *item.lines)]
    text, *lines = shown if script.dialect is not Dialect.SHELL else [item.text, *item.lines]
    odd = script.dialect is not Dialect.SHELL and any(line.count('"') % 2 for line in lines)
    if (odd or open_quote(text, script.dialect)) and not re.match(r"(?i)@?echo\b", item.text):
        uneven = [index for index, line in enumerate(lines) if line.count('"') % 2]
        for index in uneven or [0]:
            yield _closed(script, item, index)


def _closed(script: Script, item: Statement, index: int) -> Remark:
    place, text = item.line + index, item.lines[index].rstrip()
    sign = text[-1] if text[-1:] in "^`\\" and len(item.lines) > 1 else ""
    body = text[: -len(sign)].rstrip() if sign else text
    mixed = bool(re.search(r"\"[^\"]*'$|'[^']*\"$", body))
    return _at(
        script,
        place,
        "quote-open",
        State.FAIL,
        "a quote is opened with one sign and closed with another" if mixed else "a quote is opened and never closed",
        "everything that follows becomes part of one word",
        f"grammar of {script.dialect.value}",
        (body[:-1] if mixed else body) + '"' + (f" {sign}" if sign else ""),
    )


def _batch(script: Script, item: Statement) -> Iterator[Remark]:
    text = item.text
    first = text.split()[0].lower().lstrip("@") if text.split() else ""
    if text.startswith("#"):
        yield _at(
            script,
            item.line,
            "comment",
            State.WARN,
            "`#` begins no comment in batch",
            "cmd tries to start a program of that name",
            "cmd.exe",
            "REM " + text.lstrip("# "),
        )
    if first == "export":
        yield _at(
            script,
            item.line,
            "wrong-shell",
            State.FAIL,
            "`export` is a command of the Unix shell",
            "cmd does not know it, and the variable is not set",
            "cmd.exe",
            re.sub(r"(?i)^export\s+", "set ", text),
        )
    spaced = re.match(r'(?i)^@?set\s+"?(\w+)\s+=\s*(.*)$|^@?set\s+"?(\w+)=\s+(.*)$', text)
    if spaced and not re.match(r"(?i)@?set\s+/", text):
        name, value = spaced[1] or spaced[3], spaced[2] or spaced[4] or ""
        yield _at(
            script,
            item.line,
            "set-with-spaces",
            State.FAIL,
            "spaces round `=` become part of the name or the value",
            "cmd takes them literally",
            "cmd.exe, set",
            f'set "{name}={value.strip().strip(chr(34))}"',
        )
    if re.match(r'(?i)^@?(?:"?[^"&|]*\\)?vc(?:vars\w*|vars)\.bat\b|^@?"[^"]*vcvars\w*\.bat', text) and first != "call":
        yield _at(
            script,
            item.line,
            "call-missing",
            State.FAIL,
            "a batch file is started without `call`",
            "control never comes back: nothing after this line runs",
            "cmd.exe, call",
            "call " + text,
        )
    folder = re.match(r"(?i)^(cd|chdir|pushd)\s+(/d\s+)?([^\"&|]+)$", text)
    if folder and re.search(r"[%<\s]", folder[3].strip()):
        yield _at(
            script,
            item.line,
            "cd-unquoted",
            State.WARN,
            "the folder is not in quotes",
            "a user name or folder with a space or an & breaks the line",
            "cmd.exe",
            f'{folder[1]} /d "{folder[3].strip()}"' if folder[1].lower() != "pushd" else f'pushd "{folder[3].strip()}"',
        )
    drive = re.match(r"(?i)^(?:cd|chdir)\s+\"?[a-z]:", text)
    if drive and "/d" not in text.lower() and not (folder and re.search(r"[%<\s]", folder[3].strip())):
        yield _at(
            script,
            item.line,
            "cd-drive",
            State.WARN,
            "`cd` without /d does not change the drive",
            "started from another drive, the commands below run in the wrong folder",
            "cmd.exe, cd",
            re.sub(r"(?i)^(cd|chdir)\s+", r"\1 /d ", text),
        )
    if re.search(r"(?i)EnableDelayedExpansion", text):
        yield _at(
            script,
            item.line,
            "delayed-expansion",
            State.WARN,
            "EnableDelayedExpansion eats every `!` in a value",
            "a PATH or user name with ! is silently changed; nothing in most scripts needs it",
            "cmd.exe, setlocal",
            None if _uses_delayed(script) else re.sub(r"(?i)\s*EnableDelayedExpansion", "", text),
        )
    if re.match(r"(?i)^pause\b", text):
        yield _at(
            script,
            item.line,
            "pause",
            State.WARN,
            "`pause` waits for a key",
            "started by another program, the script hangs here for ever",
            "cmd.exe",
            "",
        )
    if re.match(r"(?i)^(?:rmdir|rd)\b", text) and "if exist" not in text.lower():
        target = re.sub(r"(?i)^(?:rmdir|rd)\s+(?:/\w\s+)*", "", text).strip()
        yield _at(
            script,
            item.line,
            "rmdir-unchecked",
            State.WARN,
            "the folder is removed and nobody looks whether that worked",
            "a locked file leaves half of the old build behind, which the next one then takes for its own",
            "cmd.exe",
            f"if exist {target} ( {text} || exit /b 1 )",
        )


def _powershell(script: Script, item: Statement) -> Iterator[Remark]:
    match = re.match(r"(?i)^set\s+(\w+)=(.*)$", item.text)
    if match:
        yield _at(
            script,
            item.line,
            "wrong-shell",
            State.FAIL,
            "`set X=Y` sets no environment variable in PowerShell",
            "it is Set-Variable there, and a program that is started does not see it",
            "PowerShell, about_Environment_Variables",
            f"$env:{match[1]} = '{match[2].strip(chr(34))}'",
        )
    if re.search(r"\s&&\s|\s\|\|\s", re.sub(r"'[^']*'|\"[^\"]*\"", "''", item.text)):
        yield _at(
            script,
            item.line,
            "chain",
            State.WARN,
            "`&&` and `||` are unknown to Windows PowerShell 5.1",
            "it stops with a ParserError; PowerShell 7 knows them",
            "PowerShell, about_Pipeline_Chain_Operators",
        )
    taken_over = any(re.search(r"(?i)cmd(?:\.exe)?\s.*(?:&&|&).*\bset\b", each.text) for each in script.commands)
    if re.search(r"(?i)vcvars\w*\.bat", item.text) and not taken_over:
        yield _at(
            script,
            item.line,
            "environment-lost",
            State.FAIL,
            "vcvars changes the environment of a cmd that ends at once",
            "nothing of it reaches PowerShell; Launch-VsDevShell.ps1 does that",
            "PowerShell; Visual Studio DevShell",
        )


def _posix(script: Script, item: Statement) -> Iterator[Remark]:
    match = re.match(r"(?i)^set\s+\"?([A-Za-z_]\w*)=(.*)$", item.text)
    if match:
        yield _at(
            script,
            item.line,
            "wrong-shell",
            State.FAIL,
            "`set X=Y` sets no variable in the Unix shell",
            "it replaces the script's own arguments",
            "POSIX, set",
            f"export {match[1]}={match[2]}",
        )
    if re.match(r"^[A-Za-z_]\w*\s+=\s*\S|^export\s+\w+\s+=", item.text):
        yield _at(
            script,
            item.line,
            "set-with-spaces",
            State.FAIL,
            "no space may stand before `=`",
            "the shell takes the name for a program",
            "POSIX shell grammar",
            re.sub(r"\s*=\s*", "=", item.text, count=1),
        )
    bare = re.match(r"^([A-Z_][A-Z0-9_]+)=\S*$", item.text)
    if (
        bare
        and re.match(r"(?:USE|BUILD|TORCH|CUDA|MAX_JOBS|CMAKE|CC$|CXX$)", bare[1])
        and not _exported(script, bare[1])
    ):
        yield _at(
            script,
            item.line,
            "not-exported",
            State.WARN,
            f"{bare[1]} is set but not exported",
            "the programs that the script starts do not see it",
            "POSIX, export",
            "export " + item.text,
        )


def _exported(script: Script, name: str) -> bool:
    return any(re.search(rf"\bexport\b.*\b{name}\b|^set -a", item.text) for item in script.commands)


def _uses_delayed(script: Script) -> bool:
    return any(re.search(r"!\w+!", item.text) for item in script.commands)


def _placeholders(script: Script, item: Statement) -> Iterator[Remark]:
    match = re.search(r"<(?!string>|module>|stdin>)[A-Za-z][\w -]*>|\[[a-z]+_[a-z_]+\]|\bpath[-/]to[-/]\w+", item.text)
    if match and not re.search(r"(?i)^(?:echo|rem)\b", item.text):
        yield _at(
            script,
            item.line_of(match[0]),
            "placeholder",
            State.FAIL,
            f"`{match[0]}` was never filled in",
            "it is taken literally (and < reads a file in a shell)",
            "the script itself",
        )


def _failures(said: Said) -> Iterator[Remark]:
    script = said.script
    work = [command for command in said.commands if command.program in _WORK]
    unchecked = [command for command in work if not command.checked]
    last = script.commands[-1] if script.commands else None
    ends_well = last is not None and bool(re.match(r"(?i)^exit(?: /b)? 0$", last.text))
    single = len(script.commands) == 1
    if unchecked and not single:
        how = {
            Dialect.BATCH: "add `|| exit /b 1` to it",
            Dialect.POWERSHELL: "look at $LASTEXITCODE after it: $ErrorActionPreference does not stop for programs",
            Dialect.SHELL: "begin the script with `set -euo pipefail`",
        }[script.dialect]
        command = unchecked[0]
        lines = ", ".join(str(item.line) for item in unchecked[:8])
        yield _at(
            script,
            command.line,
            "no-error-check",
            State.WARN,
            f"nobody looks whether this worked (lines {lines})",
            f"after a failure the script goes on, and the first error is lost above the last one: {how}",
            f"{script.dialect.value}",
        )
    if ends_well and last and not single:
        yield _at(
            script,
            last.line,
            "always-success",
            State.WARN,
            "the script says that it succeeded whatever happened",
            "who started it cannot tell a failed build from a good one",
            "cmd.exe, exit",
            re.sub(r"0$", "%ERRORLEVEL%" if script.dialect is Dialect.BATCH else "$?", last.text),
        )


def _at(
    script: Script, line: int, name: str, state: State, found: str, why: str, source: str, corrected: str | None = None
) -> Remark:
    text = script.lines[line - 1].strip() if 0 < line <= len(script.lines) else ""
    return Remark(id=name, state=state, line=line, text=text, found=found, why=why, source=source, corrected=corrected)
