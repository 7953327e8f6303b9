"""Words of another shell, `call`, and folders: what one shell says and another does not understand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from rekindle.review.document import Dialect
from rekindle.review.packages import CONDAS
from rekindle.review.remark import Raised, raised
from rekindle.review.subject import Subject
from rekindle.review.trace import Assignment, Invocation

# `MAX_JOBS=8` and `MAX_JOBS=8 python setup.py`, as the Unix shell writes them
_ASSIGNMENT = re.compile(r"[A-Z_][A-Z0-9_]*=")
# `%NAME%` of cmd; in the Unix shell a format may look like it (`%Y%`), so only upper case and well-known names count
_VARIABLES = {
    Dialect.BATCH: re.compile(r"\$env:\w+|\$\{?[A-Z_][A-Z0-9_]{2,}\}?"),
    Dialect.POWERSHELL: re.compile(r"%[A-Za-z][A-Za-z0-9_]{2,}(?:\(x86\))?%"),
    Dialect.SHELL: re.compile(r"%(?:[A-Z][A-Z0-9_]{2,}|ProgramFiles(?:\(x86\))?|UserProfile|AppData|LocalAppData)%"),
}
# What prints a text or hands it to another shell may have such a variable in it.
_HANDS_ON = {
    Dialect.BATCH: ["powershell", "pwsh", "python", "bash", "wsl", "echo", "findstr", "sed", "rem"],
    Dialect.POWERSHELL: ["cmd", "cmd.exe", "write-host", "echo", "write-output", "set-content", "add-content"],
    Dialect.SHELL: ["date", "printf", "echo", "cmd", "cmd.exe", "sed", "awk"],
}
SHOWN = {Dialect.BATCH: "cmd", Dialect.POWERSHELL: "PowerShell", Dialect.SHELL: "the shell"}


def check(subject: Subject) -> Iterator[Raised]:
    for item in subject.trace.invocations:
        if item.dialect is Dialect.BATCH:
            yield from _batch(subject, item)
        elif item.dialect is Dialect.POWERSHELL:
            yield from _powershell(subject, item)
        else:
            yield from _posix(subject, item)
    yield from _values(subject)


def _line(subject: Subject, item: Invocation) -> str:
    return subject.document.line(item.line)


def _foreign(item: Invocation | Assignment, what: str, effect: str, right: str | None = None, line: int = 0) -> Raised:
    """A word of another shell."""
    shell = "the Unix shell" if item.dialect is Dialect.SHELL else SHOWN[item.dialect]
    return raised("wrong-shell", line or item.line, what=f"`{what}`", shell=shell, effect=effect, corrected=right)


def _variable(item: Invocation | Assignment, text: str, line: int) -> Iterator[Raised]:
    """A variable as another shell writes it."""
    match = _VARIABLES[item.dialect].search(text)
    if match:
        name = match[0].strip("%")
        right = {Dialect.BATCH: "%X%", Dialect.POWERSHELL: f"$env:{name}"}.get(item.dialect, f"${name}")
        yield _foreign(item, match[0], f"{SHOWN[item.dialect]} does not fill it in: write {right}", line=line)


def _variables(item: Invocation) -> Iterator[Raised]:
    if item.words[0].text.lower() not in _HANDS_ON[item.dialect]:
        yield from islice((found for word in item.words[1:] for found in _variable(item, word.text, word.line)), 1)


def _batch(subject: Subject, item: Invocation) -> Iterator[Raised]:
    first = item.words[0].text
    low, line = first.lower(), _line(subject, item)
    if first.startswith("#"):
        yield raised("comment", item.line, corrected=re.sub(r"^(\s*)#+\s*", r"\1REM ", line))
    elif low == "export" and len(item.words) > 1:
        right = re.sub(r"(?i)^(\s*)export\s+", r"\1set ", line)
        yield _foreign(item, "export", "cmd does not know it, and the variable is not set: write set X=…", right)
    elif low.startswith("$"):
        yield _foreign(item, first, "$env: is PowerShell; cmd sets a variable with set X=…")
    elif _ASSIGNMENT.match(first):
        effect = "cmd looks for a program of that name, and the variable is not set: write set X=…"
        right = re.sub(r"^(\s*)", r"\1set ", line, count=1)
        yield _foreign(item, first, effect, right if len(item.words) == 1 else None)
    elif low in ("source", ".") and len(item.words) > 1:
        yield _foreign(item, first, "cmd does not know it: write call …\\Scripts\\activate.bat")
    else:
        yield from _variables(item)
    yield from _call(subject, item)
    yield from _folders(subject, item)
    works = subject.notes or any(step.what != "other" for step in subject.builds)
    if low == "pause" and not item.conditional and works:
        yield raised("pause", item.line)
    removes = low in ("rmdir", "rd") and not (item.checked or item.conditional)
    if removes and any(word.lower() in ("build", "build\\", "dist") for word in item.arguments):
        yield raised("rmdir-unchecked", item.line)


def _call(subject: Subject, item: Invocation) -> Iterator[Raised]:
    own = re.split(r"[\\/]", subject.document.name)[-1].lower()
    if item.program == own and not item.conditional and not item.arguments and item.reached:
        yield raised("starts-itself", item.line)
        return
    if item.called or item.child or subject.notes:
        return
    name = item.program
    batch = name.endswith((".bat", ".cmd")) or name in ("activate", "deactivate", "vcvarsall", "vcvars64", "vsdevcmd")
    conda = name in CONDAS and len(item.words) > 1
    if not (batch or conda) or subject.lasts[item.scope] <= item.order:
        return
    plain = item.line == item.last and not item.conditional and item.after in ("", "||")
    right = subject.rewritten(item.line, r"^(\s*@?)(?=\S)", r"\1call ") if plain else None
    if batch or (conda and item.words[1].text in ("activate", "deactivate")):
        shown = f"{name} {item.words[1].text}" if conda else name
        yield raised("call-missing", item.line, program=shown, corrected=right)
    elif conda and item.words[1].text in ("create", "install", "env", "update"):
        yield raised("call-missing-conda", item.line, corrected=right, certain=False)


def _folders(subject: Subject, item: Invocation) -> Iterator[Raised]:
    if item.program not in ("cd", "chdir"):
        return
    words = [word for word in item.words[1:] if word.text.lower() != "/d"]
    raw, target = " ".join(word.raw for word in words), " ".join(word.text for word in words)
    if not raw.startswith('"') and re.search(r"(?i)%(?:USERNAME|USERPROFILE)%", raw):
        quoted = r"(?i)\b(cd|chdir)\s+(?:/d\s+)?\S.*$"
        right = subject.rewritten(item.line, quoted, lambda match: f'{match[1]} /d "{raw}"')
        yield raised("cd-unquoted", item.line, corrected=right)
        return
    letter = target[:2].lower()
    if not re.match(r"[a-z]:", letter) or len(words) < len(item.words) - 1:
        return
    # `D:` before it, or soon after it, changes the drive.
    if any(each.program == letter and each.order - item.order < 4 for each in subject.trace.invocations):
        return
    elsewhere = any(re.match(r"(?i)[abd-z]:", each.directory or "") for each in subject.trace.invocations)
    if letter != "c:" or elsewhere or "%" not in target:
        yield raised("cd-drive", item.line, corrected=subject.rewritten(item.line, r"(?i)\b(cd|chdir)\s+", r"\1 /d "))


def _powershell(subject: Subject, item: Invocation) -> Iterator[Raised]:
    first = item.words[0].text.lower()
    second = item.words[1].text if len(item.words) > 1 else ""
    line = _line(subject, item)
    if first == "export" and second:
        match = re.match(r"(\s*)export\s+(\w+)=[\"']?([^\"'\n]*)[\"']?\s*$", line)
        right = f"{match[1]}$env:{match[2]} = '{match[3]}'" if match and "$" not in match[3] else None
        effect = "it is a word of the Unix shell, and the variable is not set here: write $env:X = …"
        yield _foreign(item, "export", effect, right)
    elif first == "set" and "=" in second and not second.startswith("-"):
        match = re.match(r"(?i)(\s*)set\s+\"?(\w+)=([^\"\n]*)\"?\s*$", line)
        right = f"{match[1]}$env:{match[2]} = '{match[3]}'" if match and not re.search(r"[%$]", match[3]) else None
        effect = "it is Set-Variable there; programs do not see it: write $env:X = …"
        yield _foreign(item, "set X=Y", effect, right)
    elif _ASSIGNMENT.match(item.words[0].text):
        effect = "PowerShell looks for a program of that name, and the variable is not set: write $env:X = …"
        yield _foreign(item, item.words[0].text, effect)
    elif first == "source" and second:
        yield _foreign(item, "source", "PowerShell does not know it: run …\\Scripts\\Activate.ps1")
    elif first == "call" and second:
        yield _foreign(item, "call", "call is a word of cmd; use the operator &")
    elif first == "where" and len(item.words) == 2 and re.fullmatch(r"[\w.-]+", second) and not item.piped:
        right = re.sub(r"\bwhere\b(?!\.exe)", "where.exe", line, count=1)
        yield raised("where-alias", item.line, name=second, corrected=right)
    yield from _variables(item)


def _posix(subject: Subject, item: Invocation) -> Iterator[Raised]:
    first = item.words[0].text
    second = item.words[1].text if len(item.words) > 1 else ""
    line = _line(subject, item)
    if first == "set" and re.match(r"[A-Za-z_]\w*=", second):
        right = re.sub(r"^(\s*)set\s+", r"\1export ", line)
        effect = "it replaces the script's own arguments, and the variable is not set: write export X=Y"
        yield _foreign(item, "set X=Y", effect, right)
    elif first.lower() in ("rem", "call", "setlocal", "endlocal", "setx") and len(item.words) > 1 and first != "call":
        yield _foreign(item, first, "it is a word of cmd")
    elif re.match(r"(?i)\$env:", item.text):
        yield _foreign(item, item.text.split()[0], "$env: is PowerShell: write export X=…")
    elif second == "=" and re.fullmatch(r"[A-Z_][A-Z0-9_]*", first):
        right = re.sub(r"\s*=\s*", "=", line, count=1)
        yield raised("set-with-spaces", item.line, name=first, shell="the shell", corrected=right)
    elif first == "export" and re.search(r"export\s+\w+\s+=", item.text):
        yield raised("set-with-spaces", item.line, name=second, shell="the shell")
    yield from _variables(item)


def _values(subject: Subject) -> Iterator[Raised]:
    """Variables of another shell in a value."""
    for item in subject.trace.assignments:
        if item.how in ("environment", "cmake"):
            yield from _variable(item, item.value, item.line)
