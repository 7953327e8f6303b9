"""The shell itself: words of another shell, quotes, undefined variables, folders, failures that nobody sees."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rekindle.knowledge.builds.script_rules import outside
from rekindle.review.builds import ScriptBuild
from rekindle.review.document import Dialect
from rekindle.review.remark import Raised, raised
from rekindle.review.subject import Subject
from rekindle.review.trace import Invocation

_PLACEHOLDER = re.compile(
    r"<(?!<)(?:You|your[\w -]*|path[\w -]*|user(?:name)?|version|name|dir|folder|venv\w*)>|\[[a-z]+_[a-z_]+\]\\"
    r"|(?<![\w./-])/?path[-/]to[-/]\w+|\bC:\\path\\to\\|\bYOUR_[A-Z_]+\b|\byour[-_](?:username|user|name|env|path)\b",
    re.IGNORECASE,
)
_TEES = frozenset({"tee", "tee-object"})
_SHOWN = {Dialect.BATCH: "cmd", Dialect.POWERSHELL: "PowerShell", Dialect.SHELL: "the shell"}


def check(subject: Subject) -> Iterator[Raised]:
    yield from _slips(subject)
    for item in subject.trace.invocations:
        if item.dialect is Dialect.BATCH:
            yield from _batch(subject, item)
        elif item.dialect is Dialect.POWERSHELL:
            yield from _powershell(subject, item)
        else:
            yield from _posix(subject, item)
    yield from _values(subject)
    yield from _undefined(subject)
    yield from _placeholders(subject)
    yield from _delayed(subject)
    yield from _secrets(subject)
    yield from _failures(subject)
    if subject.document.dialect is Dialect.SHELL and subject.document.ends == "\r\n":
        yield raised("line-ends", 1)


def _slips(subject: Subject) -> Iterator[Raised]:
    """Faults of the reading. A command over many lines has the same one on each: it is told once."""
    slips = list({(slip.rule, slip.line): slip for slip in subject.trace.slips}.values())
    index = 0
    while index < len(slips):
        slip = slips[index]
        more: dict[int, str] = {}
        while (
            slip.rule in ("continuation", "continuation-space")
            and index + 1 < len(slips)
            and slips[index + 1].rule == slip.rule
            and slips[index + 1].line == slips[index].line + 1
        ):
            index += 1
            more[slips[index].line] = slips[index].corrected or ""
        yield Raised(rule=slip.rule, line=slip.line, fields=slip.fields, corrected=slip.corrected, more=more)
        index += 1


def _line(subject: Subject, item: Invocation) -> str:
    return subject.document.line(item.line)


def _batch(subject: Subject, item: Invocation) -> Iterator[Raised]:
    first = item.words[0].text
    low, line = first.lower(), _line(subject, item)
    if first.startswith("#"):
        yield raised("comment", item.line, corrected=re.sub(r"^(\s*)#+\s*", r"\1REM ", line))
    elif low == "export" and len(item.words) > 1:
        right = re.sub(r"(?i)^(\s*)export\s+", r"\1set ", line)
        yield raised(
            "wrong-shell",
            item.line,
            what="`export`",
            shell="cmd",
            effect="cmd does not know it, and the variable is not set: write set X=…",
            corrected=right,
        )
    elif low.startswith("$"):
        yield raised(
            "wrong-shell",
            item.line,
            what=f"`{first}`",
            shell="cmd",
            effect="$env: is PowerShell; cmd sets a variable with set X=…",
        )
    elif low in ("source", ".") and len(item.words) > 1:
        yield raised(
            "wrong-shell",
            item.line,
            what=f"`{first}`",
            shell="cmd",
            effect="cmd does not know it: write call …\\Scripts\\activate.bat",
        )
    else:
        for word in item.words[1:]:
            match = re.search(r"\$env:\w+|\$\{?(?:[A-Z_][A-Z0-9_]{2,})\}?", word.text)
            if match and low not in ("powershell", "pwsh", "python", "bash", "wsl", "echo", "findstr", "sed", "rem"):
                yield raised(
                    "wrong-shell",
                    word.line,
                    what=f"`{match[0]}`",
                    shell="cmd",
                    effect="cmd does not fill it in: write %X%",
                )
                break
    yield from _call(subject, item)
    yield from _folders(subject, item)
    if (
        low == "pause"
        and not item.conditional
        and (subject.notes or any(step.what != "other" for step in subject.builds))
    ):
        yield raised("pause", item.line)
    if (
        low in ("rmdir", "rd")
        and any(word.lower() in ("build", "build\\", "dist") for word in item.arguments)
        and not item.checked
        and not item.conditional
    ):
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
    conda = name in ("conda", "mamba", "micromamba") and len(item.words) > 1
    if not (batch or conda) or subject.last_in(item.scope) <= item.order:
        return
    line = _line(subject, item)
    right = (
        re.sub(r"^(\s*@?)(?=\S)", r"\1call ", line)
        if item.line == item.last and not item.conditional and item.after in ("", "||")
        else None
    )
    if batch or (conda and item.words[1].text in ("activate", "deactivate")):
        shown = f"{name} {item.words[1].text}" if conda else name
        yield raised("call-missing", item.line, program=shown, corrected=right)
    elif conda and item.words[1].text in ("create", "install", "env", "update"):
        yield raised("call-missing-conda", item.line, corrected=right, certain=False)


def _folders(subject: Subject, item: Invocation) -> Iterator[Raised]:
    if item.program not in ("cd", "chdir"):
        return
    raw = " ".join(word.raw for word in item.words[1:] if word.text.lower() != "/d")
    target = " ".join(word.text for word in item.words[1:] if word.text.lower() != "/d")
    line = _line(subject, item)
    slash = any(word.text.lower() == "/d" for word in item.words)
    if not raw.startswith('"') and re.search(r"(?i)%(?:USERNAME|USERPROFILE)%", raw):
        right = re.sub(r"(?i)\b(cd|chdir)\s+(?:/d\s+)?\S.*$", lambda m: f'{m[1]} /d "{raw}"', line)
        yield raised("cd-unquoted", item.line, corrected=right)
        return
    drive = re.match(r"([A-Za-z]):", target)
    if not drive or slash:
        return
    letter = drive[1].lower() + ":"
    around = [each for each in subject.trace.invocations if each.program == letter]
    if any(each.order > item.order and each.order - item.order < 4 for each in around) or any(
        each.order < item.order for each in around
    ):
        return
    elsewhere = any(re.match(r"(?i)[abd-z]:", each.directory or "") for each in subject.trace.invocations)
    if letter == "c:" and not elsewhere and "%" in target:
        return
    yield raised("cd-drive", item.line, corrected=re.sub(r"(?i)\b(cd|chdir)\s+", r"\1 /d ", line, count=1))


def _powershell(subject: Subject, item: Invocation) -> Iterator[Raised]:
    first = item.words[0].text.lower()
    line = _line(subject, item)
    if first == "export" and len(item.words) > 1:
        match = re.match(r"(\s*)export\s+(\w+)=[\"']?([^\"'\n]*)[\"']?\s*$", line)
        right = f"{match[1]}$env:{match[2]} = '{match[3]}'" if match and "$" not in match[3] else None
        yield raised(
            "wrong-shell", item.line, what="`export`", shell="PowerShell",
            effect="it is a word of the Unix shell, and the variable is not set here: write $env:X = …",
            corrected=right,
        )  # fmt: skip
    elif (
        first == "set" and len(item.words) > 1 and "=" in item.words[1].text and not item.words[1].text.startswith("-")
    ):
        match = re.match(r"(?i)(\s*)set\s+\"?(\w+)=([^\"\n]*)\"?\s*$", line)
        right = f"{match[1]}$env:{match[2]} = '{match[3]}'" if match and not re.search(r"[%$]", match[3]) else None
        yield raised(
            "wrong-shell",
            item.line,
            what="`set X=Y`",
            shell="PowerShell",
            effect="it is Set-Variable there; programs do not see it: write $env:X = …",
            corrected=right,
        )
    elif first == "source" and len(item.words) > 1:
        yield raised(
            "wrong-shell",
            item.line,
            what="`source`",
            shell="PowerShell",
            effect="PowerShell does not know it: run …\\Scripts\\Activate.ps1",
        )
    elif first == "call" and len(item.words) > 1:
        yield raised(
            "wrong-shell",
            item.line,
            what="`call`",
            shell="PowerShell",
            effect="call is a word of cmd; use the operator &",
        )
    elif first == "where" and len(item.words) == 2 and re.fullmatch(r"[\w.-]+", item.words[1].text) and not item.piped:
        name = item.words[1].text
        yield raised(
            "where-alias", item.line, name=name, corrected=re.sub(r"\bwhere\b(?!\.exe)", "where.exe", line, count=1)
        )
    for word in item.words[1:]:
        match = re.search(r"%[A-Z][A-Z0-9_]+%", word.text)
        if match and first not in (
            "cmd",
            "cmd.exe",
            "write-host",
            "echo",
            "write-output",
            "set-content",
            "add-content",
        ):
            yield raised(
                "wrong-shell",
                word.line,
                what=f"`{match[0]}`",
                shell="PowerShell",
                effect=f"PowerShell does not fill it in: write $env:{match[0].strip('%')}",
            )
            break


def _posix(subject: Subject, item: Invocation) -> Iterator[Raised]:
    first = item.words[0].text
    line = _line(subject, item)
    if first == "set" and len(item.words) > 1 and re.match(r"[A-Za-z_]\w*=", item.words[1].text):
        right = re.sub(r"^(\s*)set\s+", r"\1export ", line)
        yield raised(
            "wrong-shell",
            item.line,
            what="`set X=Y`",
            shell="the Unix shell",
            effect="it replaces the script's own arguments, and the variable is not set: write export X=Y",
            corrected=right,
        )
    elif first.lower() in ("rem", "call", "setlocal", "endlocal", "setx") and len(item.words) > 1 and first != "call":
        yield raised("wrong-shell", item.line, what=f"`{first}`", shell="the Unix shell", effect="it is a word of cmd")
    elif re.match(r"(?i)\$env:", item.text):
        yield raised(
            "wrong-shell",
            item.line,
            what=f"`{item.text.split()[0]}`",
            shell="the Unix shell",
            effect="$env: is PowerShell: write export X=…",
        )
    elif len(item.words) > 1 and item.words[1].text == "=" and re.fullmatch(r"[A-Z_][A-Z0-9_]*", first):
        yield raised(
            "set-with-spaces",
            item.line,
            name=first,
            shell="the shell",
            corrected=re.sub(r"\s*=\s*", "=", line, count=1),
        )
    elif first == "export" and re.search(r"export\s+\w+\s+=", item.text):
        yield raised("set-with-spaces", item.line, name=item.words[1].text, shell="the shell")
    for word in item.words[1:]:
        match = re.search(r"%[A-Z][A-Z0-9_]{2,}%", word.text)
        if match and first not in ("date", "printf", "echo", "cmd", "cmd.exe", "sed", "awk"):
            yield raised(
                "wrong-shell",
                word.line,
                what=f"`{match[0]}`",
                shell="the Unix shell",
                effect=f"the shell does not fill it in: write ${match[0].strip('%')}",
            )
            break


def _values(subject: Subject) -> Iterator[Raised]:
    """Variables of another shell in a value."""
    for item in subject.trace.assignments:
        if item.how not in ("environment", "cmake"):
            continue
        if item.dialect is Dialect.BATCH:
            match = re.search(r"\$env:\w+|\$\{?[A-Z_][A-Z0-9_]{2,}\}?", item.value)
            if match:
                yield raised(
                    "wrong-shell",
                    item.line,
                    what=f"`{match[0]}`",
                    shell="cmd",
                    effect="cmd does not fill it in: write %X%",
                )
        else:
            match = re.search(r"%[A-Z][A-Z0-9_]{2,}%", item.value)
            if match:
                good = "$env:" if item.dialect is Dialect.POWERSHELL else "$"
                yield raised(
                    "wrong-shell",
                    item.line,
                    what=f"`{match[0]}`",
                    shell=_SHOWN[item.dialect],
                    effect=f"it does not fill it in: write {good}{match[0].strip('%')}",
                )


def _undefined(subject: Subject) -> Iterator[Raised]:
    own = {item.name.upper() for item in subject.trace.assignments}
    plain = {re.sub(r"_", "", name): name for name in own}
    for (name, dialect), line in subject.trace.missing.items():
        upper = name.upper()
        if (
            upper in own
            or upper in outside()
            or upper in subject.trace.asked
            or name in subject.trace.asked
            or len(name) < 3
        ):
            continue
        near = plain.get(re.sub(r"_", "", upper)) or next(
            (each for each in own if len(each) > 5 and _apart(each, upper)), None
        )
        shown = {Dialect.BATCH: f"%{name}%", Dialect.POWERSHELL: f"${name}"}.get(dialect, f"${name}")
        if subject.helper:
            near = near if near and len(name) > 4 else None
            if near is None:
                continue
        if near and not subject.notes:
            yield raised("undefined-near", line, shown=shown, near=near)
        elif (
            dialect is Dialect.BATCH
            and not subject.notes
            and subject.document.dialect is Dialect.BATCH
            and _matters(subject, name, line)
        ):
            yield raised("undefined", line, shown=shown)


def _apart(one: str, other: str) -> bool:
    """One letter more, less or different."""
    if abs(len(one) - len(other)) > 1 or one[0] != other[0] or re.sub(r"\d", "", one) == re.sub(r"\d", "", other):
        return False
    if one.rstrip("S") == other.rstrip("S"):
        return False
    if len(one) == len(other):
        return sum(a != b for a, b in zip(one, other, strict=True)) == 1
    long, short = (one, other) if len(one) > len(other) else (other, one)
    return any(long[:index] + long[index + 1 :] == short for index in range(len(long)))


def _matters(subject: Subject, name: str, line: int) -> bool:
    """In a path, a folder or a setting that the build reads; not in a message."""
    text = subject.document.line(line)
    return not re.match(r"(?i)\s*@?(?:echo|rem|title|::)", text) and bool(subject.builds or subject.installs)


def _placeholders(subject: Subject) -> Iterator[Raised]:
    told: set[int] = set()
    spans = [(item.line, item.last) for item in subject.trace.invocations] + [
        (item.line, item.line) for item in subject.trace.assignments
    ]
    for first, last in spans:
        for number in range(first, min(last, first + 60) + 1):
            line = subject.document.line(number)
            if number in told or re.match(r"(?i)\s*@?(?:echo|rem|#|::|write-|printf|cat )", line):
                continue
            match = _PLACEHOLDER.search(line)
            if (
                match
                and "${{" not in line
                and not re.search(r"[$%{]YOUR_", line)
                and not re.search(r"\bYOUR_[A-Z_]+\s*=", line)
            ):
                told.add(number)
                yield raised("placeholder", number, text=match[0].rstrip("\\"))


def _delayed(subject: Subject) -> Iterator[Raised]:
    line = subject.trace.options.get("delayed")
    if line is None or re.search(r"!\w+(?::[^!\n]*)?!", subject.document.text):
        return
    text = subject.document.line(line)
    right = re.sub(r"(?i)\s*EnableDelayedExpansion", "", text)
    yield raised("delayed-expansion", line, corrected=right)


def _secrets(subject: Subject) -> Iterator[Raised]:
    for number, line in enumerate(subject.document.lines, 1):
        if "://" in line and re.search(r"://[^/\s:@$%{]+:[^/\s@$%{]{4,}@|://(?:gh[pousr]_|glpat-|hf_)\w{10,}@", line):
            yield raised("secret", number)


def _failures(subject: Subject) -> Iterator[Raised]:
    builds = [step for step in subject.builds if step.what != "other" and step.item.reached and not step.item.child]
    tees = list(_tees(subject, builds))
    if not subject.notes:
        yield from tees
    told = {found.line for found in tees}
    unchecked = [
        step for step in builds if not step.item.checked and step.line not in told and step.item.line not in told
    ]
    last = _last(subject)
    if subject.notes:
        # Each block is a script of its own.
        tees, told = [], set()
        zeros = [item for item in subject.trace.invocations if re.fullmatch(r"(?i)exit /b 0", item.text.strip())]
        last = next((item for item in zeros if not item.conditional), None)
    zero = last is not None and re.fullmatch(r"(?i)exit(?:\s+/b)?\s+0", last.text.strip()) is not None
    if zero and last is not None and unchecked:
        shell = _SHOWN[last.dialect]
        yield raised("always-success", last.line, build=unchecked[0].line, shell=shell)
        return
    if subject.notes:
        return
    hidden = [step for step in unchecked[-1:] if step is builds[-1] and _hidden(subject, step)]
    if hidden and not tees:
        step = hidden[-1]
        how = {
            Dialect.BATCH: "add `|| exit /b 1` to it",
            Dialect.POWERSHELL: "look at $LASTEXITCODE after it; $ErrorActionPreference does not stop for programs",
        }.get(step.item.dialect, "begin the script with `set -e`")
        yield raised("no-error-check", step.item.line, how=how, shell=_SHOWN[step.item.dialect])


def _tees(subject: Subject, builds: list[ScriptBuild]) -> Iterator[Raised]:
    for step in builds:
        item = step.item
        tee = next((name for name in item.piped if name in _TEES), None)
        if tee is None:
            continue
        if item.dialect is Dialect.SHELL and not item.pipefail and "PIPESTATUS" not in subject.document.text:
            yield raised("tee", item.line, tee=tee)
        elif item.dialect is Dialect.POWERSHELL and not item.checked:
            yield raised("tee-powershell", item.line, tee="Tee-Object")


def _hidden(subject: Subject, step: ScriptBuild) -> bool:
    """Commands follow that succeed whether the build did or not."""
    later = [
        item for item in subject.trace.invocations if item.order > step.item.order and item.reached and not item.child
    ]
    same_shell = [
        item
        for item in later
        if item.scope == step.item.scope
        or subject.document.dialect in (Dialect.BATCH, Dialect.SHELL, Dialect.POWERSHELL)
    ]
    same_shell = [item for item in same_shell if subject.install(item) is None]
    own = [
        item
        for item in same_shell
        if not (item.program in ("cd", "popd", "tee", "tee-object") or item.line == step.item.line)
    ]
    if subject.document.dialect in (Dialect.DOCKERFILE, Dialect.GITLAB):
        return step.item.after == ";" or False
    if subject.document.dialect is Dialect.WORKFLOW:
        return any(item.scope == step.item.scope for item in own) and step.item.dialect.windows
    return bool(own) or (step.what == "torch" and _blind(subject, step))


def _blind(subject: Subject, step: ScriptBuild) -> bool:
    """A build of hours that starts in the wrong folder, or without its packages, when a step before it failed."""
    before = [
        item for item in subject.trace.invocations if item.order < step.item.order and item.reached and not item.child
    ]
    steps = [
        item for item in before if item.program in ("git", "cd", "set-location") or subject.install(item) is not None
    ]
    return len(steps) > 1 and not any(item.checked for item in steps)


def _last(subject: Subject) -> Invocation | None:
    reached = [item for item in subject.trace.invocations if item.reached and not item.child and not item.conditional]
    return reached[-1] if reached else None
