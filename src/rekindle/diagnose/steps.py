"""The commands of the data, filled in, as values: `export A=B`, `set A=B`, or a program and its words.

What needs a shell of its own (a pipe, a substitution) stays a text that is only shown.
"""

from __future__ import annotations

import re
import shlex

from rekindle.core.command import Command, Piece, Shell, ShellVariable, Word

_NEEDS_A_SHELL = re.compile(r"&|\||;|\$\(|`|[0-9]?>[ /&]|\*|~")
_IN_QUOTES = re.compile(r"""'[^']*'|"[^"$`%]*\"""")
_SETTING = re.compile(r'set\s+(?:"([A-Za-z_]\w*)=([^"]*)"|([A-Za-z_]\w*)=(.*))\Z')
_WINDOWS_WORD = re.compile(r'((?:"[^"]*"|[^\s"])+)')
_ASSIGNED = re.compile(r"[A-Za-z_]\w*=")
_OF_UNIX = ("export", "unset")
_UNIX_NAME = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
_WINDOWS_NAME = re.compile(r"%([A-Za-z_]\w*)%")


def read(text: str, system: str | None) -> Command:
    """`system`: where it will be pasted, if that is known; a line that only one shell reads says it itself."""
    verb = text.partition(" ")[0]
    if verb == "set":
        return _settings(text)
    if _NEEDS_A_SHELL.search(_IN_QUOTES.sub("", text)):
        return Command.parse(text)
    if (system == "windows" and verb not in _OF_UNIX) or verb == "call" or "%" in text:
        words = [_word(each.replace('"', ""), _WINDOWS_NAME) for each in _WINDOWS_WORD.findall(text)]
        return Command(*words, system="windows", shell=Shell.CMD if verb == "call" or "%" in text else None)
    try:
        split = shlex.split(text)
    except ValueError:
        return Command.parse(text)
    if verb == "unset":
        return Command(environment=dict.fromkeys(split[1:]), system="linux")
    given = split[1:] if verb == "export" else split
    count = next((at for at, each in enumerate(given) if not _ASSIGNED.match(each)), len(given))
    environment = dict(each.split("=", 1) for each in given[:count])
    return Command(
        *(_word(each, _UNIX_NAME) for each in given[count:]),
        environment={name: _word(value, _UNIX_NAME) for name, value in environment.items()},
        system="linux" if environment else system,
    )


def _settings(text: str) -> Command:
    found = [_SETTING.match(each.strip()) for each in text.split(" & ")]
    if not all(found):
        return Command.parse(text)
    pairs = {each[1] or each[3]: each[2] if each[1] else each[4] for each in found if each}
    environment = {name: _word(value, _WINDOWS_NAME) for name, value in pairs.items()}
    return Command(environment=environment, system="windows", shell=Shell.CMD)


def _word(text: str, variable: re.Pattern[str]) -> Word:
    pieces: list[Piece] = []
    end = 0
    for match in variable.finditer(text):
        pieces += [text[end : match.start()], ShellVariable(next(name for name in match.groups() if name))]
        end = match.end()
    return tuple(each for each in (*pieces, text[end:]) if each != "") if pieces else text
