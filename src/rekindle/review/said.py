"""What a script says: the variables and CMake options it sets, the programs it starts, and what follows from them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from rekindle.core.version import Version
from rekindle.knowledge.gpu.capability import Capability, Target
from rekindle.knowledge.torch.releases import parse_arch_list
from rekindle.review.script import Dialect, Script, Statement, words


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """`how` is `environment` for a variable, `cmake` for a -D. `part` is how it stands in the line."""

    name: str
    value: str
    line: int
    how: str
    part: str


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A program that is started, with its words. `checked`: something looks at how it ended."""

    program: str
    words: tuple[str, ...]
    line: int
    statement: Statement
    checked: bool


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a check may ask. What the script does not say is None."""

    script: Script
    settings: tuple[Setting, ...]
    commands: tuple[Command, ...]
    torch: Version | None = None
    cuda: Version | None = None
    cuda_line: int | None = None
    python: Version | None = None
    python_line: int | None = None
    toolset: Version | None = None
    studio: str | None = None
    studio_line: int | None = None
    gpus: tuple[Capability, ...] = ()
    ninja: bool | None = None

    def setting(self, name: str) -> Setting | None:
        """The last one wins, as in the shell."""
        return next((item for item in reversed(self.settings) if item.name == name), None)

    def ran(self, *programs: str) -> tuple[Command, ...]:
        return tuple(item for item in self.commands if item.program in programs)

    @property
    def windows(self) -> bool:
        return self.script.dialect is not Dialect.SHELL

    def targets(self) -> tuple[Setting, tuple[Target, ...]] | None:
        """The architectures of TORCH_CUDA_ARCH_LIST, or else of CMAKE_CUDA_ARCHITECTURES; None when unreadable."""
        for name in ("TORCH_CUDA_ARCH_LIST", "CMAKE_CUDA_ARCHITECTURES"):
            setting = self.setting(name)
            if setting and setting.value:
                try:
                    found = parse_arch_list(setting.value) if name.startswith("TORCH") else _cmake_list(setting.value)
                except (ValueError, IndexError):
                    continue
                return setting, found
        return None


_SET = {
    Dialect.BATCH: re.compile(r'(?i)^@?set\s+(?!/)"?(\w+)\s*=\s*([^"]*)"?\s*$'),
    Dialect.POWERSHELL: re.compile(r"(?i)^\$env:(\w+)\s*=\s*(.*)$"),
    Dialect.SHELL: re.compile(r"^(?:export\s+)?([A-Za-z_]\w*)=(\"[^\"]*\"|'[^']*'|\S*)\s*$"),
}
_DEFINE = re.compile(r"^-D([A-Za-z_]\w*)(?::\w+)?=(.*)$")
_CUDA = re.compile(r"(?i)CUDA[\\/]+v(\d+\.\d+)|cuda-(\d+\.\d+)|\bcu(?:da)?(?:-toolkit|toolkit)?[=]=?(\d+\.\d+)")
_CHECK = re.compile(
    r"(?i)errorlevel|\$LASTEXITCODE|\|\||\$\?|throw|exit /b %|trap\b|^set -\w*e|pipefail|ErrorActionPreference"
)


def said(script: Script, *, gpus: Sequence[Capability] = (), torch: Version | None = None) -> Said:
    settings = tuple(_settings(script))
    commands = tuple(_commands(script))
    text = "\n".join(item.text for item in script.commands)
    cuda = _cuda(script, settings)
    studio = _first(script, r"(?i)Microsoft Visual Studio[\\/]+(\d{4})")
    toolset = _first(script, r"(?i)-vcvars_ver=(\d+\.\d+)")
    python = _first(script, r"(?i)\bpython=+(\d\.\d+)|\bpy -(\d\.\d+)|\bpython(3\.\d+)\b")
    release = torch or _torch(text, settings)
    return Said(
        script=script,
        settings=settings,
        commands=commands,
        torch=release,
        cuda=Version(cuda[0]) if cuda else None,
        cuda_line=cuda[1] if cuda else None,
        python=Version(python[0]) if python else None,
        python_line=python[1] if python else None,
        toolset=Version(toolset[0]) if toolset else None,
        studio=studio[0] if studio else None,
        studio_line=(toolset or studio or ("", 0))[1] or None,
        gpus=tuple(gpus),
        ninja=_ninja(text, settings),
    )


def _settings(script: Script) -> Iterator[Setting]:
    values: dict[str, str] = {}
    for item in script.commands:
        for text in _pieces(item.text, script.dialect):
            match = _SET[script.dialect].match(text)
            if match:
                value = _expanded(match[2].strip().strip("\"'"), values, script.dialect)
                values[match[1].upper()] = value
                yield Setting(name=match[1], value=value, line=item.line, how="environment", part=item.text)
        for word in words(item.text, script.dialect):
            define = _DEFINE.match(word)
            if define:
                value = _expanded(define[2].strip().strip("\"'"), values, script.dialect)
                line = item.line_of(f"-D{define[1]}")
                part = f"-D{define[1]}"
                yield Setting(name=define[1], value=value, line=line, how="cmake", part=part)


def _commands(script: Script) -> Iterator[Command]:
    everywhere = script.dialect is not Dialect.BATCH and any(
        re.search(r"(?i)^set -\w*e|ErrorActionPreference\s*=\s*['\"]Stop", item.text) for item in script.commands
    )
    items = script.commands
    for index, item in enumerate(items):
        following = items[index + 1].text if index + 1 < len(items) else ""
        pieces = _pieces(item.text, script.dialect)
        for text in pieces:
            found = words(text, script.dialect)
            while found and found[0].lower().lstrip("@") in (
                "call",
                "start",
                "&",
                "sudo",
                "time",
                "nice",
                "/wait",
                "(",
            ):
                found = found[1:]
            if not found or _SET[script.dialect].match(text):
                continue
            program = re.split(r"[\\/]", found[0].lstrip("@"))[-1].lower().removesuffix(".exe")
            checked = everywhere or "||" in item.text or bool(_CHECK.search(following)) or text is not pieces[-1]
            yield Command(program=program, words=tuple(found), line=item.line, statement=item, checked=checked)


def _pieces(text: str, dialect: Dialect) -> list[str]:
    signs = r"\s&&\s|\s\|\|\s|\s&\s" if dialect is Dialect.BATCH else r"\s&&\s|\s\|\|\s|;\s"
    return [part.strip() for part in re.split(signs, text) if part.strip()]


def _expanded(value: str, values: dict[str, str], dialect: Dialect) -> str:
    pattern = {
        Dialect.BATCH: r"%(\w+)%",
        Dialect.POWERSHELL: r"\$env:(\w+)",
        Dialect.SHELL: r"\$\{?(\w+)\}?",
    }[dialect]
    return re.sub(pattern, lambda match: values.get(match[1].upper(), match[0]), value, flags=re.IGNORECASE)


def _cuda(script: Script, settings: Sequence[Setting]) -> tuple[str, int] | None:
    """The toolkit that the script points at: a variable that counts, else a path anywhere."""
    for name in ("CUDACXX", "CUDA_HOME", "CUDA_PATH", "CUDAToolkit_ROOT", "CUDA_TOOLKIT_ROOT_DIR", "CUDA_ROOT"):
        for setting in reversed(settings):
            match = _CUDA.search(setting.value) if setting.name == name else None
            if match:
                return next(group for group in match.groups() if group), setting.line
    for item in script.commands:
        match = _CUDA.search(named_in(item.text))
        if match:
            return next(group for group in match.groups() if group), item.line_of(match[0])
    return None


def named_in(text: str) -> str:
    """A command without the folders that it takes out of PATH: they are named, but not used."""
    if text.startswith("rk_drop ") or " -notin " in text:
        return ""
    return re.sub(r"%\w+:[^%]*=%", "", text)


def _torch(text: str, settings: Sequence[Setting]) -> Version | None:
    match = re.search(
        r"(?i)(?:checkout|--branch|-b)[ =]+(?:tags/)?v(\d+\.\d+\.\d+)"
        r"|\btorch==(\d+\.\d+\.\d+)",
        text,
    )
    if match:
        return Version(next(group for group in match.groups() if group))
    for setting in settings:
        number = re.match(r"\d+\.\d+(?:\.\d+)?", setting.value)
        if setting.name == "PYTORCH_BUILD_VERSION" and number:
            return Version(number[0])
    return None


def _ninja(text: str, settings: Sequence[Setting]) -> bool | None:
    if re.search(r"(?i)-G\s?\"?Ninja", text):
        return True
    if re.search(r"(?i)-G\s?\"?(?:Visual Studio|NMake|Unix)", text):
        return False
    for setting in settings:
        if setting.name == "CMAKE_GENERATOR":
            return setting.value.lower().startswith("ninja")
        if setting.name == "USE_NINJA":
            return setting.value.upper() not in ("0", "OFF", "FALSE", "NO")
    return None


def _first(script: Script, pattern: str) -> tuple[str, int] | None:
    for item in script.commands:
        match = re.search(pattern, item.text)
        if match:
            return next(group for group in match.groups() if group), item.line_of(match[0])
    return None


def _cmake_list(text: str) -> tuple[Target, ...]:
    """`86;90-real;75-virtual` as targets."""
    found: list[Target] = []
    for part in re.split(r"[;,\s]+", text):
        number, _, kind = part.partition("-")
        if not number:
            continue
        suffix = number[-1] if number[-1] in "af" else ""
        capability = Capability.parse(number.rstrip("af"))
        if kind != "virtual":
            found.append(Target(capability, suffix=suffix))
        if kind != "real":
            found.append(Target(capability, ptx=True, suffix=suffix))
    return tuple(found)
