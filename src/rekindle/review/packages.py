"""What a command installs: pip, uv and conda in one form."""

from __future__ import annotations

import re

import msgspec

from rekindle.review.trace import Invocation, Word, program_of

_VALUED = frozenset(
    {"-r", "-c", "-i", "-f", "-t", "-d", "-w", "-n", "-p", "--index-url", "--extra-index-url", "--find-links"}
    | {"--target", "--requirement", "--constraint", "--python", "--wheel-dir", "--dest", "--prefix", "--root", "--name"}
    | {"--config-settings", "--config-setting", "-C", "--global-option", "--install-option", "--no-binary"}
    | {"--only-binary", "--platform", "--python-version", "--abi", "--implementation", "--timeout", "--retries"}
    | {"--trusted-host", "--cache-dir", "--channel", "--log", "--progress-bar", "--upgrade-strategy", "--file"}
    | {"--index", "--torch-backend", "--default-index", "--proxy", "--src", "--report"}
)


# A requirement as pip takes it: a name, extras, versions, a marker.
_REQUIREMENT = re.compile(
    r"([A-Za-z0-9][\w.-]*)\s*(?:\[[^\]]*\])?\s*((?:(?:[<>=!~]=?=?)\s*[\w.*+!-]+\s*,?\s*)*)(?:;.*)?\Z", re.DOTALL
)


def plain_name(text: str) -> str:
    """A package's name in the one spelling that the index compares."""
    return re.sub(r"[-_.]+", "-", text).lower()


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to install: a requirement of the index, or a place with a source (`.`, a folder, an address)."""

    name: str
    line: int
    raw: str
    requirement: str | None = None
    source: str | None = None
    quoted: bool = False


class Install(msgspec.Struct, frozen=True, kw_only=True):
    """`tool`: pip, uv or conda. `verb`: install, wheel, uninstall, create."""

    item: Invocation
    tool: str
    verb: str
    wanted: tuple[Wanted, ...]
    index: str | None = None
    index_line: int = 0
    isolated: bool = True
    files: bool = False
    binary: bool = False

    def named(self, name: str) -> Wanted | None:
        return next((item for item in self.wanted if item.name == name), None)


def install_of(item: Invocation) -> Install | None:
    """What this command installs; None when it installs nothing."""
    words = list(item.words)
    found = _split(words)
    if found is None:
        return None
    tool, verb, rest = found
    wanted: list[Wanted] = []
    index: str | None = None
    index_line = item.line
    isolated, files, editable, binary = True, False, False, False
    skip = ""
    for word in rest:
        text = word.text
        if skip:
            if skip in ("-i", "--index-url", "--extra-index-url", "--index", "--default-index", "-f", "--find-links"):
                index, index_line = (text, word.line) if "pytorch.org" in text or index is None else (index, index_line)
            files = files or skip in ("-r", "--requirement", "--file")
            if skip in ("-c", "--channel") and tool == "conda":
                label = re.search(r"cuda-([\d.]+)", text)
                if label:
                    wanted.append(Wanted(name="cuda-label", line=word.line, raw=text, requirement=f"=={label[1]}"))
            skip = ""
            continue
        if text == "--no-build-isolation" or text.startswith("--no-build-isolation"):
            isolated = False
        elif text in ("-e", "--editable"):
            editable = True
        elif text.startswith(("--index-url=", "--extra-index-url=", "--find-links=", "--index=")):
            index, index_line = text.partition("=")[2], word.line
        elif text.startswith(("--prefer-binary", "--only-binary", "--no-index")):
            binary = True
        elif text in _VALUED and not (tool == "conda" and text in ("-t", "-w")):
            skip = text
        elif text.startswith("-") and not re.match(r"-[eE]\S", text):
            files = files or bool(re.match(r"-r\S", text))
        else:
            place = _wanted(word, tool, editable=editable)
            if place is not None:
                wanted.append(place)
            editable = False
    if any(own.name == "PIP_NO_BUILD_ISOLATION" for own in item.prefix):
        isolated = False
    return Install(
        item=item, tool=tool, verb=verb, wanted=tuple(wanted), index=index, index_line=index_line, isolated=isolated,
        files=files, binary=binary,
    )  # fmt: skip


def _split(words: list[Word]) -> tuple[str, str, list[Word]] | None:
    """The tool, its verb, and the words behind it."""
    texts = [word.text for word in words]
    program = program_of(texts[0]) if texts else ""
    at = 0
    if program in ("python", "py"):
        if (
            "-m" not in texts
            or texts.index("-m") + 1 >= len(texts)
            or not re.fullmatch(r"pip", texts[texts.index("-m") + 1])
        ):
            return None
        at, tool = texts.index("-m") + 2, "pip"
    elif re.fullmatch(r"pip[\d.]*", program):
        at, tool = 1, "pip"
    elif program == "uv" and len(texts) > 2 and texts[1] == "pip":
        at, tool = 2, "uv"
    elif program in ("conda", "mamba", "micromamba", "conda.bat"):
        at, tool = 1, "conda"
    else:
        return None
    while at < len(texts) and texts[at].startswith("-"):
        at += 2 if texts[at] in _VALUED else 1
    verb = texts[at] if at < len(texts) else ""
    if tool == "conda" and verb == "env" and at + 1 < len(texts):
        at += 1
        verb = texts[at]
    if verb not in ("install", "wheel", "uninstall", "create", "download"):
        return None
    return tool, verb, words[at + 1 :]


def _wanted(word: Word, tool: str, *, editable: bool) -> Wanted | None:
    text = word.text.strip().strip("\"'")
    text = re.sub(r"^-[eE](?=\S)", "", text)
    if not text:
        return None
    if tool == "conda":
        return _conda(word, text)
    if re.fullmatch(r"%%?~?\w*%?|\$\{?\w+\}?(?:\.\w+)*|\$\(.*\)|!\w+!", text):
        return None  # whatever the variable holds
    at = re.match(r"([\w.-]+)\s*@\s*(.+)", text)
    if re.match(r"(?:git\+|https?://|file:)", text) or (at and "://" in at[2]):
        address = at[2] if at and "://" in at[2] else text
        return Wanted(name=_name_of(text), line=word.line, raw=word.raw, source=address, quoted=word.quoted)
    if editable or re.match(r"[.~/\\$%]|[A-Za-z]:[\\/]", text) or re.search(r"[\\/]", text):
        name = _name_of(text)
        wheel = bool(re.search(r"(?i)\.whl$|[*?]|^(?:\./)?dist[\\/]", text))
        return Wanted(name=name, line=word.line, raw=word.raw, source=None if wheel else text, quoted=word.quoted)
    requirement = _REQUIREMENT.match(text)
    if requirement is None:
        return Wanted(name=plain_name(re.split(r"[=<>!~\[\s]", text)[0]), line=word.line, raw=word.raw)
    return Wanted(
        name=plain_name(requirement[1]),
        line=word.line,
        raw=word.raw,
        requirement=re.sub(r"\s+", "", requirement[2] or ""),
        quoted=word.quoted,
    )


def _conda(word: Word, text: str) -> Wanted:
    text = text.rpartition("::")[2] if "::" in text else text
    label = re.search(r"cuda-([\d.]+)", word.text) if "::" in word.text else None
    match = re.match(r"([\w.-]+)\s*(?:(==?|[<>]=?)\s*([\w.*]+))?", text)
    if match is None:
        return Wanted(name=text, line=word.line, raw=word.raw)
    number = match[3]
    sign = match[2]
    specifier = ""
    if number and sign in ("=", "=="):
        clean = number.rstrip("*").rstrip(".")
        specifier = f"=={clean}" if sign == "==" or clean.count(".") > 1 else f"=={clean}.*"
    elif number and sign:
        specifier = sign + number.rstrip("*").rstrip(".")
    elif label:
        specifier = f"=={label[1]}"
    return Wanted(name=plain_name(match[1]), line=word.line, raw=word.raw, requirement=specifier)


def _name_of(text: str) -> str:
    egg = re.search(r"[#&]egg=([\w.-]+)", text)
    if egg:
        return str(plain_name(egg[1]))
    sub = re.search(r"#subdirectory=([^&\s]+)", text)
    plain = re.split(r"[@#]", re.sub(r"^(?:git\+)?\w+://(?:[^/@]*@)?", "", text))[0]
    last = [part for part in re.split(r"[\\/]", plain) if part and part not in (".", "..")]
    name = last[-1] if last else "."
    if sub:
        return str(plain_name(name.removesuffix(".git"))) + "#" + sub[1]
    return str(plain_name(name.removesuffix(".git").removesuffix(".whl"))) or "."
