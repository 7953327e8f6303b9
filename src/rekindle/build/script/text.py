"""What the three kinds of script share: their words, the Python part as text, and what may stand in a file at all."""

from __future__ import annotations

import json
import re
from pathlib import Path

from rekindle.build.configure import cmake_result
from rekindle.build.configure.render import one_line, split
from rekindle.build.script import (
    standalone,
    standalone_folder,
    standalone_libraries,
    standalone_steps,
)
from rekindle.build.script.script import Script
from rekindle.core import disk
from rekindle.core.errors import BadInput
from rekindle.formats import dll_names
from rekindle.source import edits

PYTHON_BEGINS = "---- the Python part of this script begins here ----"


def head(script: Script, file: str) -> list[str]:
    """The comment at the top."""
    return [
        script.title,
        "",
        "Written by Rekindle from a plan, for one computer. It needs no Rekindle there: the tools that it looks for in",
        "its first step are enough. It asks for nothing and changes nothing outside the folder RK_WORK.",
        "",
        *usage(file),
        "",
        "Every step checks what it did and leaves a mark. Run again, the script goes on with the first step that has",
        "none; a step is also done again when the plan or a place below has changed, and so is all that follows it.",
    ]


def usage(file: str) -> list[str]:
    """A file's name is shown by shells, so only a plain one is."""
    file = file if re.fullmatch(r"[A-Za-z0-9_.-]+", file) else "build" + file[file.rindex(".") :]
    if file.endswith(".ps1"):
        # PowerShell runs nothing of the folder it stands in by its bare name.
        file = f".\\{file}"
    return [
        f"{file}                do what is not done yet",
        f"{file} --from STEP    do this step and all after it again",
        f"{file} --until STEP   stop after this step",
        f"{file} --help         say this, and the steps",
    ]


def _told(script: Script, file: str) -> list[str]:
    steps = ", ".join(step.name for step in script.steps)
    return [one_line(script.title), *(f"  {line}" for line in (*usage(file), f"steps: {steps}"))]


def python_part(script: Script, file: str) -> list[str]:
    """The modules as one file, with the plan in it, and what `--help` says."""
    shared = (disk, dll_names, cmake_result, edits)
    parts = (standalone, standalone_folder, *shared, standalone_libraries, standalone_steps)
    first, *others = (Path(str(part.__file__)).read_text(encoding="utf-8") for part in parts)
    empty = "PLAN: dict[str, Any] = {}\n"
    assert first.count(empty) == 1
    plan = json.dumps({**script.plan, "help": _told(script, file)}, indent=1, ensure_ascii=True)
    first = first.replace(empty, f"PLAN: dict[str, Any] = {plan}\n")
    ours = r"^from (?:__future__|rekindle\S*) import (?:\([^)]*\)|[^\n]*)\n"
    later = [re.sub(ours, "", text, flags=re.MULTILINE) for text in others]
    return [*first.splitlines(), *(line for text in later for line in ("", "", *text.splitlines()))]


def checked(script: Script, text: str) -> str:
    """ASCII, or an error that names what is not: a batch file is read in whatever code page the console has."""
    for place in script.places:
        if any(not named and re.search("<.*>", part) for named, part in split(place.value, script.before(place))):
            message = f"the recording of that computer hides a name in {place.variable}, `{place.value}`"
            raise BadInput(message, hint="write that path into the build file, as it is there")
    if text.isascii():
        return text
    where = [place for place in script.places if not place.value.isascii()]
    odd = f"{where[0].variable}, `{where[0].value}`" if where else f"`{next(c for c in text if not c.isascii())}`"
    message = f"the script would hold letters outside ASCII: {odd}"
    hint = "name a folder of plain letters: `--work C:\\rk` for the build, another place for the source or the Python"
    if where and where[0].variable in ("RK_CUDA", "RK_NVCC", "RK_CUDNN"):
        hint = f'make a junction with plain letters, `mklink /J C:\\cuda "{where[0].value}"`, and name it in the plan'
    raise BadInput(message, hint=hint)


def comment(line: str, mark: str = "#") -> str:
    return f"{mark} {one_line(line)}" if line else mark


def title(words: str, mark: str = "#") -> list[str]:
    return [f"{mark} " + "-" * 70, comment(words, mark)]
