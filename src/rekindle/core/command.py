"""A command that a person pastes or that a file carries: words, never text put together by hand.

There is one renderer for each place where a command can stand. What a place cannot carry safely is refused. Here and
not among the values of `model`, because findings hold commands and the console prints them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cache
from typing import NamedTuple

from rekindle.core import paths
from rekindle.core.errors import BadInput
from rekindle.core.redact import UNSAFE
from rekindle.core.version import Keyed

# What each shell takes as it stands. Patterns stay text: `re` compiles one when it is first needed.
_PLAIN = r"[A-Za-z0-9_./\\:=+~@-]+\Z"
# Behind `=` and `:` a `~` may be somebody's home, also in an argument of bash.
_SH_PLAIN = r"(?![~,])(?:[A-Za-z0-9_./+@%,~-]|[:=](?!~))+\Z"
_NAME = r"[A-Za-z_][A-Za-z0-9_]*\Z"
_POWERSHELL_PLAIN = r"(?:--?[A-Za-z0-9][A-Za-z0-9_-]*|[A-Za-z0-9_./\\][A-Za-z0-9_./\\:=+-]*)\Z"
_SH_SPECIAL = '"$`\\!\n'
# PowerShell takes the typographic quotes for quotes too.
_SINGLE_QUOTES = "'\u2018\u2019\u201a\u201b"
_DOUBLE_QUOTES = '"\u201c\u201d\u201e'


class Shell(str, Enum):
    """Where a command is pasted."""

    SH = "sh"
    CMD = "cmd"
    POWERSHELL = "powershell"

    @staticmethod
    def of(system: str | None) -> Shell:
        """The shell that was told; else the one that is there on a `windows` or a `linux`, of this computer when none
        is named.
        """
        windows = (system or paths.system()) == "windows"
        if _told is not None and (windows or _told is Shell.SH):
            return _told
        return (_of_parent() if paths.system() == "windows" else Shell.POWERSHELL) if windows else Shell.SH


_told: Shell | None = None


_pip: tuple[Piece, ...] = ("pip",)


def tell_pip(python: Piece | None = None, *, uv: bool = False) -> None:
    """Whose pip is meant where no Python is named: that of this one, uv's own, or that of the active environment."""
    global _pip
    _pip = ("uv", "pip") if uv else ("pip",) if python is None else (python, "-m", "pip")


def tell_shell(shell: Shell | None) -> None:
    """What `--shell` says: commands are spelled for it from now on."""
    global _told
    _told = shell


def for_powershell_only(commands: Iterable[Command]) -> bool:
    """Of Windows, written elsewhere without a word on the shell, and spelled in another way for cmd."""
    if _told is not None or paths.system() == "windows":
        return False
    ours = [each for each in commands if each.system == "windows" and not each.told]
    try:
        return any(each.spell(Shell.CMD) != each for each in ours)
    except BadInput:  # cmd cannot carry one at all
        return True


@cache
def _of_parent() -> Shell:
    """On Windows, by the programs that lead to this one; PowerShell, which is always there, if none is a shell."""
    import psutil

    known = {"cmd.exe": Shell.CMD, "powershell.exe": Shell.POWERSHELL, "pwsh.exe": Shell.POWERSHELL}
    known |= dict.fromkeys(("bash.exe", "sh.exe", "zsh.exe"), Shell.SH)
    try:
        names = [each.name().lower() for each in psutil.Process().parents()]
    except (psutil.Error, OSError):
        names = []
    return next((known[name] for name in names if name in known), Shell.POWERSHELL)


class ShellVariable(Keyed):
    """A piece of a word that only the place knows where the command runs: `$KEY`, `%KEY%`, `$env:KEY`."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        if not re.match(_NAME, name):
            raise BadInput(f"`{name[:40]}` is not the name of a variable")
        self.name = self._key = name

    def __str__(self) -> str:
        return self.name


Piece = str | ShellVariable
Word = str | ShellVariable | tuple[Piece, ...]


class CommandWords(NamedTuple):
    """What every renderer is given."""

    words: tuple[Word, ...]
    environment: dict[str, Word | None]
    folder: str | None = None
    note: str = ""


class Command(str):
    """One call of a program; without `words`, the variables to set. It is its own spelling, and travels as such.

    `environment` is set for the call, or cleared where the value is None; `folder` is where it runs; `note` stands
    behind it as a comment. `system` is where it will be pasted: `windows`, `linux`, or None for this computer;
    `shell` is the only one that can run it. Made by `parse` it is the text of a file: it can be shown, nothing else.
    """

    words: tuple[Word, ...]
    environment: dict[str, Word | None]
    folder: str | None
    note: str
    system: str | None
    shell: Shell | None
    told: bool
    """It is a text that somebody wrote, not words."""

    def __new__(
        cls,
        *words: Word,
        environment: Mapping[str, Word | None] | None = None,
        folder: str | None = None,
        note: str = "",
        system: str | None = None,
        shell: Shell | None = None,
    ) -> Command:
        call = CommandWords(
            words, {ShellVariable(name).name: value for name, value in (environment or {}).items()}, folder, note
        )
        made = str.__new__(cls, _SPELLINGS[shell or Shell.of(system)](call))
        made.words, made.environment, made.folder, made.note = call
        made.system, made.shell, made.told = system, shell, False
        return made

    @classmethod
    def parse(cls, text: str) -> Command:
        made = str.__new__(cls, text)
        made.words, made.environment, made.folder, made.note = (), {}, None, ""
        made.system, made.shell, made.told = None, None, True
        return made

    @classmethod
    def page(cls, address: str) -> Command:
        """An address to open: every terminal shows it as it is."""
        return cls.parse(address)

    def saying(self, *words: Word, system: str | None = None, shell: Shell | None = None) -> Command:
        """The same call in other words, or for another place."""
        return Command(
            *words, environment=self.environment, folder=self.folder, note=self.note,
            system=system or self.system, shell=shell or self.shell,
        )  # fmt: skip

    def by_pip_of(self, *program: Word) -> Command:
        """The same call by another pip (`python -m pip`, `uv pip`), if it is one of pip's."""
        known = (_pip, *_PIPS)
        rest = next((self.words[len(own) :] for own in known if self.words[: len(own)] == own), None)
        if rest is None:
            return self
        return self.saying(*program, *rest)

    def spell(self, shell: Shell) -> str:
        """As it is typed there."""
        if self.told:
            return str(self)
        return _SPELLINGS[shell](CommandWords(self.words, self.environment, self.folder, self.note))


_PIPS = (("pip",), ("python", "-m", "pip"))


def rekindle(*words: Word, system: str | None = None, note: str = "") -> Command:
    """One of our own verbs."""
    return Command("rekindle", *words, system=system, note=note)


def pip(*words: Word, python: Word | None = None, system: str | None = None) -> Command:
    """pip of the environment that `python` belongs to; without one, of the environment that is meant."""
    program: tuple[Word, ...] = _pip if python is None else (python, "-m", "pip")
    return Command(*program, *words, system=system)


def new_environment(folder: Word, system: str | None = None) -> Command:
    """By the Python that is there: Debian has no `python`."""
    windows = (system or paths.system()) == "windows"
    return Command("python" if windows else "python3", "-m", "venv", folder, system=system)


def pip_install(
    requirements: Iterable[str], *, index_url: str | None = None, python: Word | None = None, system: str | None = None
) -> Command:
    index = ("--index-url", index_url) if index_url else ()
    return pip("install", *requirements, *index, python=python, system=system)


def first_on_path(*folders: str, system: str) -> Command:
    """These folders before the others. Git's sh on Windows writes them `/c/CUDA/bin`, with colons between."""
    shell = Shell.of(system)
    separator = ":" if shell is Shell.SH else ";"
    if shell is Shell.SH and system == "windows":
        drive = re.compile(r"([A-Za-z]):/")
        folders = tuple(
            drive.sub(lambda found: f"/{found[1].lower()}/", folder.replace("\\", "/"), 1) for folder in folders
        )
    value = ("".join(f"{folder}{separator}" for folder in folders), ShellVariable("PATH"))
    return Command(environment={"PATH": value}, system=system, shell=shell)


def dockerfile(command: Command, *options: str) -> str:
    """A `RUN` line; a word that would begin a heredoc stands in the form without a shell."""
    import json

    words = [_sh_only(word) for word in command.words]
    _refuse("\n\r\0", words, "a Dockerfile")
    line = json.dumps(words) if any("<<" in word for word in words) else sh(command)
    return " ".join(["RUN", *options, line])


def workflow_step(command: Command) -> str:
    """The `run` of a step. GitHub fills in what it takes for an expression before any shell reads the line."""
    line = sh(command)
    if "${{" in line:
        raise BadInput("a step of a workflow cannot carry `${{`", hint="take it out of the name")
    return line


def without_shell(words: Iterable[str], *, windows: bool) -> str:
    """One line as the start of a process takes it on Windows, where no shell reads it; elsewhere sh does."""
    from subprocess import list2cmdline

    return list2cmdline(list(words)) if windows else " ".join(map(_quoted, words))


def sh(command: CommandWords | Command) -> str:
    sets = [f"{name}={in_sh(value)}" for name, value in command.environment.items() if value is not None]
    cleared = [name for name, value in command.environment.items() if value is None]
    if command.words:
        without = ["env", *(word for name in cleared for word in ("-u", name))] if cleared else []
        line = " ".join([*without, *sets, *map(in_sh, command.words)])
    else:
        settings = [" ".join([verb, *names]) for verb, names in (("unset", cleared), ("export", sets)) if names]
        line = " && ".join(settings)
    inside = f"cd {in_sh(command.folder)} && {line}" if command.folder else line
    return inside + _noted(command.note, "#")


def _quoted(word: str) -> str:
    import shlex

    return shlex.quote(word)


def in_sh(word: Word) -> str:
    """One word, or a value."""
    if isinstance(word, str) and re.match(_SH_PLAIN, word):
        return word
    if isinstance(word, str) and "\0" not in word and UNSAFE.search(word):
        return "$'" + "".join(map(_spelled_out, word)) + "'"
    _refuse("\0", [word], "a command")
    if isinstance(word, str):
        # The same quotes in every shell where that is safe: people paste lines from one into another.
        return _double(word, _SH_SPECIAL) or _quoted(word)
    pieces = _pieces(word)
    if not any(isinstance(each, str) and set(each) & set(_SH_SPECIAL) for each in pieces):
        inside = "".join(f"${{{each.name}}}" if isinstance(each, ShellVariable) else each for each in pieces)
        return '"' + re.sub(r"\$\{(\w+)\}(?!\w)", r"$\1", inside) + '"'
    return "".join(f'"${{{each.name}}}"' if isinstance(each, ShellVariable) else _quoted(each) for each in pieces)


def _spelled_out(letter: str) -> str:
    """What is not shown is not lost with it: without it the command would name another folder."""
    if UNSAFE.match(letter):
        return "".join(f"\\x{byte:02x}" for byte in letter.encode("utf-8", "surrogatepass"))
    return f"\\{letter}" if letter in "\\'" else letter


def _cmd(command: CommandWords | Command) -> str:
    steps = [f"cd /d {_cmd_word(command.folder)}"] if command.folder else []
    # A single one is left without quotes where nothing follows that `set` could take for the value.
    alone = not command.words and not command.folder and len(command.environment) == 1
    steps += [_cmd_setting(name, value, alone=alone) for name, value in command.environment.items()]
    steps += [" ".join(map(_cmd_word, command.words))] if command.words else []
    return " && ".join(steps) + _noted(command.note, "&rem")


def _cmd_setting(name: str, value: Word | None, *, alone: bool) -> str:
    if value is None:
        return f"set {name}=" if alone else f'set "{name}="'
    _refuse('\n\r\0"%', [value], "`set` of cmd")
    text = _cmd_text(value)
    return f"set {name}={text}" if alone and re.match(_PLAIN, text) else f'set "{name}={text}"'


def _cmd_word(word: Word) -> str:
    """Between quotes cmd reads nothing but `%`; where a quote would end them, every sign is escaped instead."""
    _refuse("\n\r\0", [word], "a cmd line")
    if isinstance(word, str):
        if re.match(_PLAIN, word):
            return word
        if '"' not in word and "%" not in word and not word.endswith("\\"):
            return f'"{word}"'
        from subprocess import list2cmdline

        return re.sub(r'([()%!^"<>&|])', r"^\1", list2cmdline([word]) if word else '""')
    _refuse('"%', [word], "a cmd line")
    return f'"{_cmd_text(word)}"'


def _cmd_text(word: Word) -> str:
    return "".join(f"%{each.name}%" if isinstance(each, ShellVariable) else each for each in _pieces(word))


def _powershell(command: CommandWords | Command) -> str:
    # PowerShell 5.1, which Windows comes with, has no `&&`.
    steps = [f"Set-Location -LiteralPath {_powershell_word(command.folder)}"] if command.folder else []
    steps += [
        f"$env:{name} = {'$null' if value is None else value_in_powershell(value)}"
        for name, value in command.environment.items()
    ]
    if command.words:
        words = [_powershell_word(word) for word in command.words]
        call = "" if words[0] == command.words[0] else "& "
        steps.append(call + " ".join(words))
    return "; ".join(steps) + _noted(command.note, "#")


def value_in_powershell(word: Word) -> str:
    """As an expression: a value to set, an element of a list."""
    return _powershell_word(word, value=True)


def _powershell_word(word: Word, *, value: bool = False) -> str:
    """Windows PowerShell hands an empty word, a double quote and a last backslash after spaces on wrongly."""
    if isinstance(word, str) and not value and re.match(_POWERSHELL_PLAIN, word):
        return word
    pieces = _pieces(word)
    _refuse("\0", [word], "a command")
    if not value:
        literal = "".join(each for each in pieces if isinstance(each, str))
        spaced = literal.endswith("\\") and any(letter.isspace() for letter in literal)
        if word == "" or '"' in literal or spaced:
            raise BadInput(f"PowerShell cannot pass `{literal[:60]}` to a program", hint="use `cmd` for this command")
    if not isinstance(word, str):
        return '"' + "".join(f"${{env:{e.name}}}" if isinstance(e, ShellVariable) else _ticked(e) for e in pieces) + '"'
    doubled = _double(word, _DOUBLE_QUOTES + "$`")
    return doubled or "'" + "".join(letter * 2 if letter in _SINGLE_QUOTES else letter for letter in word) + "'"


def _ticked(text: str) -> str:
    return "".join(f"`{letter}" if letter in _DOUBLE_QUOTES + "$`" else letter for letter in text)


def _double(word: str, special: str) -> str | None:
    return f'"{word}"' if word and not set(word) & set(special) else None


def _pieces(word: Word) -> tuple[Piece, ...]:
    return word if isinstance(word, tuple) else (word,)


def _sh_only(word: Word) -> str:
    if isinstance(word, str):
        return word
    return "".join(f"${{{each.name}}}" if isinstance(each, ShellVariable) else each for each in _pieces(word))


def _refuse(letters: str, words: Iterable[Word], where: str) -> None:
    for word in words:
        for piece in _pieces(word):
            if isinstance(piece, str) and (UNSAFE.search(piece) or any(letter in piece for letter in letters)):
                shown = piece[:60].encode("unicode_escape").decode("ascii")
                raise BadInput(f"{where} cannot carry `{shown}`", hint="use a name without such signs")


def _noted(note: str, sign: str) -> str:
    return f"  {sign} {' '.join(note.split())}" if note else ""


_SPELLINGS = {Shell.SH: sh, Shell.CMD: _cmd, Shell.POWERSHELL: _powershell}
