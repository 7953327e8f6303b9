"""The part of a build script that no shell does well: marks, logs, running programs. Needs Python 3.7 and no more.

steps.py folder WORD ...       the words of the script make sense (else 12, or 14 after --help), and the folder of this
                               build is the user's own (else 13); it is made if it is not there
steps.py start WORD ...        the steps that the words name are there (else 12); what --from names is to be done again
steps.py begin STEP            exit code 0: do it, 10: it is done already, 11: enough, --until was before it
steps.py run PROGRAM WORD ...  run it, every line with the time on the screen and in the logs
steps.py failed                say where it stopped and what to do now
"""

from __future__ import annotations

import datetime
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PLAN: dict[str, Any] = {}
KEPT, ENOUGH, BAD_WORD, HELPED = 10, 11, 12, 14
BETWEEN = "between steps"


def place(*parts: str) -> Path:
    """In the folder of this build."""
    return Path(os.environ["RK_WORK"], *parts)


def read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""


def write(path: Path, text: str) -> None:
    """Beside, then renamed: half a file never has the name of a whole one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".part")
    beside.write_bytes(text.encode("utf-8"))
    beside.replace(path)


def say(text: str) -> None:
    line = f"{datetime.datetime.now():%Y-%m-%d %H:%M:%S} {text}"
    # A console in an old code page must not end the build over a letter.
    encoding = sys.stdout.encoding or "ascii"
    print(line.encode(encoding, "replace").decode(encoding), flush=True)
    place("logs").mkdir(parents=True, exist_ok=True)
    step = read(place("step"))
    for name in ("build", step) if step in names() else ("build",):
        with place("logs", f"{name}.log").open("a", encoding="utf-8") as log:
            log.write(line + "\n")


def stop(*lines: str) -> int:
    for line in lines:
        say(line)
    return 1


def names() -> list[str]:
    return [step["name"] for step in PLAN["steps"]]


def mark(step: str) -> str:
    """What a step was done with: its part of the plan, and the places that the script names at its top."""
    own = next(each["print"] for each in PLAN["steps"] if each["name"] == step)
    return json.dumps([own, {name: os.environ.get(name, "") for name in PLAN["places"]}], sort_keys=True) + "\n"


def forget(steps: Sequence[str]) -> None:
    for path in [place("done", step) for step in steps]:
        if path.exists():
            path.unlink()


def arguments(*words: str) -> dict[str, str]:
    """What was asked for, `--from` as well as PowerShell's `-From`; nothing where the words do not make sense."""
    found, rest = {"from": "", "until": ""}, list(words)
    while rest:
        name = rest.pop(0).lstrip("-").lower()
        if name not in found or not rest:
            return {}
        found[name] = rest.pop(0)
    return found


def understood(*words: str) -> int:
    helped = any(word.lstrip("-").lower() == "help" for word in words)
    if arguments(*words) and not helped:
        return 0
    print("\n".join([*([] if helped else ["This script does not know such an argument."]), *PLAN["help"]]))
    return HELPED if helped else BAD_WORD


def until() -> str:
    return str(json.loads(read(place("asked")) or "{}").get("until", ""))


def start(*words: str) -> int:
    write(place("step"), BETWEEN)
    asked = arguments(*words)
    write(place("asked"), json.dumps(asked))
    for word in asked.values():
        if word and word not in names():
            stop(f"there is no step `{word}`", "the steps are " + ", ".join(names()))
            return BAD_WORD
    say(PLAN["title"])
    if asked["from"]:
        forget(names()[names().index(asked["from"]) :])
    return 0


def ended() -> None:
    """The step that ran has come to its end: the script would not have come here otherwise."""
    step = read(place("step"))
    if step in names():
        write(place("done", step), mark(step))
        say(f"{step:<11} done")
    write(place("step"), BETWEEN)


def begin(step: str) -> int:
    ended()
    last = until()
    if last and names().index(step) > names().index(last):
        return ENOUGH
    always = step in PLAN["always"]
    write(place("step"), step)
    if not always and read(place("done", step)) == mark(step):
        say(f"{step:<11} kept: it is done")
        write(place("step"), BETWEEN)
        return KEPT
    if not always:
        # What stands on this step is out of date once it has begun.
        forget(names()[names().index(step) :])
    say(f"{step:<11} begins")
    return 0


def failed() -> int:
    step = read(place("step"))
    return stop(
        f"FAILED in the step `{step}`",
        f"its log: {place('logs', step + '.log')}",
        "`rekindle diagnose` names the cause in such a log, on any computer",
        "correct it and run the same script again: it goes on with this step",
    )


def line_of(*words: str) -> str:
    """A command as it is typed on this system."""
    return subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)


def run(*words: str) -> int:
    """Where a program is looked for is PATH as the script has set it."""
    program = shutil.which(words[0]) or words[0]
    say("+ " + line_of(program, *words[1:]))
    try:
        process = subprocess.Popen(
            [program, *words[1:]], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
    except OSError as error:
        return stop(f"`{program}` could not be started: {error}")
    assert process.stdout is not None
    try:
        with process.stdout as said:
            for line in said:
                say(line.decode("utf-8", "replace").rstrip())
        code = process.wait()
    except KeyboardInterrupt:
        process.wait()
        stop("stopped by hand")
        return 130
    if code:
        return stop(f"`{Path(program).name}` ended with exit code {code}")
    return 0
