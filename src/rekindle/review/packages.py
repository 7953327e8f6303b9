"""What a command installs: pip, uv, conda, poetry, pixi and the lists that they read, in one form."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from functools import lru_cache

import msgspec

from rekindle.compat.wheel_platform import BuiltFor, built_for
from rekindle.core.version import Version
from rekindle.model.cuda_line import cuda_in
from rekindle.model.requirement import canonical_name, holds, place, requirement
from rekindle.review.trace import Invocation, Word, program_of

_WITH_A_VALUE = """
-r -c -i -f -t -d -w -n -p --index-url --extra-index-url --find-links --target --requirement --constraint --python
--wheel-dir --dest --prefix --root --name --config-settings --config-setting -C --global-option --install-option
--no-binary --only-binary --platform --python-version --abi --implementation --timeout --retries --trusted-host
--cache-dir --channel --log --progress-bar --upgrade-strategy --file --index --torch-backend --default-index --proxy
--src --report --group -G --source --exclude-newer --project --directory --extra -E --requirements --constraints
--override --feature --upgrade-package -P --manifest-path --index-strategy --link-mode --platform-tag --optional
"""
_VALUED = frozenset(_WITH_A_VALUE.split())
_FLAGS = """
--upgrade --user --no-deps --pre --quiet --verbose --yes --editable --no-cache-dir --force-reinstall
--ignore-installed --no-build-isolation --no-index --prefer-binary --debug --disable-pip-version-check --no-input
--require-hashes --no-clean --isolated --compile --break-system-packages --no-warn-script-location --no-warn-conflicts
--root-user-action --system --ignore-requires-python --use-pep517 --no-use-pep517 --check-build-dependencies --dry-run
--build-option --use-feature --use-deprecated --exists-action --cert --client-cert --no-color
--no-python-version-warning --keyring-provider --hash --resume-retries --no-compile --reinstall --no-verify-hashes
--all-extras --no-sources --no-build --exact --help --version --process-dependency-links --build
"""
_PIP_OPTIONS = (*_FLAGS.split(), *sorted(each for each in _VALUED if each.startswith("--")))
_INDEXES = frozenset(
    {"-i", "--index-url", "--extra-index-url", "--index", "--default-index", "-f", "--find-links", "--source"}
)
_LISTS = frozenset({"-r", "--requirement", "--requirements", "--file"})
_CONSTRAINTS = frozenset({"-c", "--constraint", "--constraints", "--override"})
_VERBS = frozenset({"install", "wheel", "uninstall", "create", "download", "add", "sync", "update", "upgrade"})
PROJECT_TOOLS = frozenset({"poetry", "pixi", "pdm", "pipenv", "rye"})
CONDAS = frozenset({"conda", "mamba", "micromamba", "conda.bat"})
INSTALLERS = PROJECT_TOOLS | CONDAS | {"pip", "pip3", "pipx", "mim", "uv", "uvx"}
_CLAUSE = re.compile(r"(?:[<>!~]=?|={1,3})\s*[A-Za-z\d*][\w.*+!-]*\Z")


CUDNN = re.compile(r"(nvidia-)?cudnn(?:-cu(\d{1,9}))?")
"""A package of cuDNN, by pip or conda, with the CUDA that it is for."""


def option_meant(name: str) -> str:
    """`--index-url` for `--inde-url`, at which pip stops: what the rest of the line means is read with it."""
    if not name.startswith("--") or any(known.startswith(name) for known in _PIP_OPTIONS):
        return name
    return next(iter(get_close_matches(name, _PIP_OPTIONS, 1, 0.8)), name)


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to install: a requirement of the index, or a place with a source (`.`, a folder, an address)."""

    name: str
    line: int
    raw: str
    requirement: str | None = None
    source: str | None = None
    quoted: bool = False
    wheel: str | None = None
    """The name of a wheel file, beside the script or at an address."""
    marker: str = ""
    build: str = ""
    """conda's build string."""

    @property
    def exact(self) -> Version | None:
        """The one release that is asked for."""
        return exact_version(self.requirement)

    @property
    def newest(self) -> bool:
        """The last commit of a repository: no tag and no commit is named."""
        branch = r"(?:@(?:main|master|HEAD|dev|develop))?"
        return bool(self.source and re.match(rf"git\+\w+://[^@#]+?{branch}(?:#|\Z)", self.source))

    @property
    def labelled(self) -> str | None:
        """`natten==0.17.3+torch250cu124` is a file that says what it was built for; no source has such a number."""
        found = re.search(r"===?\s*([\w.]+\+[\w.]+)", self.requirement or "")
        return f"{self.name}-{found[1]}" if found and self.source is None and not self.wheel else None

    def applies(self, system: str, python: str | None) -> bool:
        """Whether its marker holds; one that cannot be read does."""
        asked = requirement(f"it ; {self.marker}") if self.marker else None
        windows, version = system == "windows", python or "3.11"
        here = place(
            windows,
            platform_machine="AMD64" if windows else "x86_64",
            python_version=version,
            python_full_version=f"{version}.5",
        )
        return asked is None or holds(asked, here)


class Install(msgspec.Struct, frozen=True, kw_only=True):
    """`tool`: pip, uv or conda. `verb`: install, wheel, uninstall, create, download, sync."""

    item: Invocation
    tool: str
    verb: str
    wanted: tuple[Wanted, ...]
    index: str | None = None
    index_line: int = 0
    isolated: bool = True
    binary: bool = False
    lists: tuple[str, ...] = ()
    """Lists of requirements as the command names them."""
    constraints: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    backend: str | None = None
    """uv's `--torch-backend`."""
    environment: str | None = None
    find: tuple[str, ...] = ()
    """Pages that `-f` names."""
    limits: dict[str, str] = {}
    """What constraints say of a name."""

    def named(self, name: str) -> Wanted | None:
        return next((item for item in self.wanted if item.name == name), None)

    def on(self, system: str, python: str | None) -> Install:
        """What it asks for on a Python that is known; on another, each marker may hold."""
        if python is None or not any(each.marker for each in self.wanted):
            return self
        return msgspec.structs.replace(self, wanted=tuple(each for each in self.wanted if each.applies(system, python)))

    def exact(self, name: str) -> Version | None:
        wanted = self.named(name)
        return wanted.exact if wanted is not None else None

    @property
    def torch(self) -> Wanted | None:
        """torch by the name that this tool has for it; the last one that is asked for."""
        names = ("torch", "pytorch", "pytorch-gpu", "pytorch-cpu") if self.tool == "conda" else ("torch",)
        return next((item for item in reversed(self.wanted) if item.name in names), None)

    @property
    def pages(self) -> tuple[BuiltFor, ...]:
        """Pages of ready-made wheels for one torch."""
        pages = [each for each in (*self.find, self.index or "") if not re.search(r"\.whl\b|pytorch\.org", each)]
        return tuple(page for each in pages if (page := built_for(each)).torch is not None)

    def has(self, *options: str) -> bool:
        return any(word.partition("=")[0] in options for word in self.item.arguments)


def install_of(item: Invocation) -> Install | None:
    """What this command installs; None when it installs nothing."""
    found = _split(list(item.words))
    if found is None:
        return None
    if found[0] == "pip":
        item = msgspec.structs.replace(item, words=tuple(map(_meant, item.words)))
    tool, verb, rest = _split(list(item.words)) or found
    wanted: list[Wanted] = []
    index: str | None = None
    index_line = item.line
    lists: list[str] = []
    constraints: list[str] = []
    channels: list[str] = []
    find: list[str] = []
    backend = environment = None
    isolated, editable, binary = True, False, False
    for option, word in _options(rest, tool):
        text = word.text
        if option in _INDEXES and (tool, option) != ("conda", "-f"):
            text = text.rpartition("=")[2] if re.match(r"[\w-]+=https?:", text) else text
            page = option in ("-f", "--find-links")  # pip finds nothing below a page that is named as an index
            if ("pytorch.org" in text or index is None) and not text.endswith((".whl", ".html")[: 2 - page]):
                index, index_line = text or word.raw, word.line
            find += [text] if page else []
        elif option in ("-c", "--channel") and tool == "conda":
            channels.append(text)
            if label := cuda_in(text, least=2):
                wanted.append(Wanted(name="cuda-label", line=word.line, raw=text, requirement=f"=={label}"))
        elif option in _LISTS or (tool == "conda" and option == "-f"):
            lists.append(text)
        elif option in _CONSTRAINTS:
            constraints.append(text)
        elif option == "--torch-backend":
            backend = text
        elif option in ("-n", "--name", "-p", "--prefix", "--target", "-t", "--python"):
            environment = text if option != "--python" or not re.match(r"(?:python)?[\d.]+$", text) else environment
        elif option.startswith("--no-build-isolation"):
            isolated = False
        elif option in ("-e", "--editable"):
            editable = True
        elif option.startswith(("--prefer-binary", "--only-binary", "--no-index")):
            binary = True
        elif not option:
            place = _wanted(word, tool, editable=editable)
            wanted += [place] if place is not None else []
            editable = False
    if any(own.name == "PIP_NO_BUILD_ISOLATION" for own in item.prefix):
        isolated = False
    return Install(
        item=item, tool=tool, verb=verb, wanted=tuple(wanted), index=index, index_line=index_line, isolated=isolated,
        binary=binary, lists=tuple(lists), constraints=tuple(constraints), channels=tuple(channels),
        backend=backend, environment=environment, find=tuple(find),
    )  # fmt: skip


def options_of(item: Invocation) -> list[Word]:
    """What a command is told besides the project that it installs."""
    rest = (_split(list(item.words)) or ("", "", []))[2]
    return [word for word in rest if not re.fullmatch(r"-e|--editable|\.[\\/]?(?:\[.*)?", word.text)]


def _meant(word: Word) -> Word:
    """With the option that a misspelt one resembles."""
    name, sign, value = word.text.partition("=")
    meant = "--no-deps" if name == "--no-dependencies" else option_meant(name)
    return word if meant == name else msgspec.structs.replace(word, text=f"{meant}{sign}{value}")


def _options(words: list[Word], tool: str) -> Iterator[tuple[str, Word]]:
    """Each option with its value, and what is no option under an empty name."""
    skip = ""
    for word in words:
        text = word.text
        if skip:
            yield skip, word
            skip = ""
            continue
        name, sign, value = text.partition("=")
        short = re.match(r"-[rfic](?=[^-=\s])", text) if tool != "conda" else None
        if text.startswith("--") and sign:
            yield name, msgspec.structs.replace(word, text=value)
        elif short and not re.match(r"-[a-z]{2,}$", text):
            yield short[0], msgspec.structs.replace(word, text=text[2:])
        elif text in _VALUED and not (tool == "conda" and text in ("-t", "-w")):
            skip = text
        elif re.fullmatch(r"-[qvUI]{1,6}[rce]", text):
            skip = f"-{text[-1]}"  # `-qr list.txt`
        elif text.startswith("-") and not re.match(r"-[eE][^-\s]", text):
            yield text, word
        else:
            yield "", word


def _split(words: list[Word]) -> tuple[str, str, list[Word]] | None:
    """The tool, its verb, and the words behind it."""
    texts = [word.text for word in words]
    program = program_of(texts[0]) if texts else ""
    at = 1
    if program in ("python", "py"):
        module = texts.index("-m") + 1 if "-m" in texts else len(texts)
        if module >= len(texts) or texts[module] not in ("pip", "uv"):
            return None
        at, tool = module + 1, texts[module]
        if tool == "uv" and texts[at : at + 1] == ["pip"]:
            at += 1
    elif re.fullmatch(r"pip[\d.]*t?", program) or program == "mim":
        tool = "pip"
    elif program == "uv" and len(texts) > 1:
        tool, at = "uv", 2 if texts[1] == "pip" else 1
        if at == 1 and texts[1] not in ("add", "sync"):
            return None
    elif program in CONDAS:
        tool = "conda"
    elif program in PROJECT_TOOLS:
        tool = "conda" if program == "pixi" and "--pypi" not in texts else "pip"
    else:
        return None
    while at < len(texts) and texts[at].startswith("-"):
        at += 2 if texts[at] in _VALUED else 1
    verb = texts[at] if at < len(texts) else ""
    if tool == "conda" and verb == "env" and at + 1 < len(texts):
        at += 1
        verb = texts[at]
    if verb not in _VERBS or (verb == "update" and tool != "conda"):
        return None
    if program in PROJECT_TOOLS and verb == "install" and len(texts) <= at + 1:
        verb = "sync"
    return tool, {"add": "install", "update": "install", "upgrade": "install"}.get(verb, verb), words[at + 1 :]


def _wanted(word: Word, tool: str, *, editable: bool) -> Wanted | None:
    text = word.text.strip()
    text = text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text
    text = re.sub(r"^-[eE](?=\S)", "", text)
    if not text:
        return None
    if tool == "conda":
        return _conda(word, text)
    if any(msgspec.structs.replace(word, text=text, known=known).loose for known in (True, False)):
        return None  # whatever the variable holds
    plain, *rest = re.split(r" ;|;(?= )", text, maxsplit=1)
    plain, marker = plain.strip(), "".join(rest).strip()
    at = re.match(r"([\w.-]+)(?:\[[\w, .-]*\])?\s*@\s*(\S.*)", plain)
    if re.match(r"(?:git\+|https?://|file:)", text) or (at and "://" in at[2]):
        named, address = (at[1], at[2]) if at and "://" in at[2] else (plain, plain)
        return msgspec.structs.replace(_placed(word, named, address), marker=marker)
    if at and re.match(r"[\^~<>=!*\d]|latest\Z", at[2]):
        # As poetry writes a version: `torch@^2.8`.
        text = at[1] + by_caret(at[2].replace("latest", "*"))
    if editable or re.match(r"[.~/\\$%]|[A-Za-z]:[\\/]", text) or re.search(r"[\\/]|\.whl$", text):
        return _placed(word, text, text)
    parts = parts_of(text)
    if parts is None:
        return Wanted(name=canonical_name(re.split(r"[=<>!~\[\s]", text)[0]), line=word.line, raw=word.raw)
    name, requirement, marker = parts
    return Wanted(
        name=canonical_name(name), line=word.line, raw=word.raw, quoted=word.quoted, marker=marker,
        # What a variable holds that nobody knows is no version.
        requirement=requirement,
    )  # fmt: skip


def _placed(word: Word, named: str, address: str) -> Wanted:
    """A folder, an address or a file; a ready-made wheel has no source."""
    file = re.split(r"[\\/]", re.split(r"[#?]", address.replace("%2B", "+").replace("%2b", "+"))[0])[-1]
    wheel = file.lower().endswith(".whl")
    line = re.search(r"download\.pytorch\.org/whl/(cpu|cu\d{1,9})/", address)
    if wheel and line and "+" not in file:
        file = re.sub(r"\A(torch-[^-]+)", rf"\1+{line[1]}", file)  # older ones have it in their address alone
    glob = bool(re.search(r"[*?]|^(?:\./)?dist[\\/]", address)) and "://" not in address
    name = canonical_name(file.split("-")[0]) if wheel and "*" not in file else _name_of(named)
    name = "torch" if wheel and name == "pytorch" else name  # NVIDIA's for Jetson
    return Wanted(
        name=name, line=word.line, raw=word.raw, source=None if wheel or glob else address, quoted=word.quoted,
        wheel=file if wheel else None,
    )  # fmt: skip


def parts_of(text: str) -> tuple[str, str, str] | None:
    """A requirement as pip takes it: its name, its versions without spaces, its marker. None: it is none."""
    name = re.match(r"[A-Za-z0-9][\w.-]*", text)
    if name is None:
        return None
    rest, _, marker = text[name.end() :].partition(";")
    rest = rest.strip()
    if rest.startswith("["):
        rest = rest.partition("]")[2].strip() if "]" in rest else "["
    if rest.startswith("(") and rest.endswith(")"):
        rest = rest[1:-1]
    clauses = [clause.strip() for clause in rest.split(",") if clause.strip()]
    if not all(_CLAUSE.match(clause) for clause in clauses):
        return None
    return name[0], ",".join(re.sub(r"\s+", "", clause) for clause in clauses), marker.strip()


def _conda(word: Word, text: str) -> Wanted | None:
    if re.fullmatch(r"\$\{?\w+\}?|%\w+%", text) or text.endswith((".yml", ".yaml")):
        return None
    channel, _, text = text.rpartition("::")
    bracket = re.match(r"([\w.-]+)\[(.*)\]\Z", text)
    if bracket:
        inner = dict(re.findall(r"(\w+)\s*=\s*[\"']?([^\"',]+)", bracket[2]))
        text = f"{bracket[1]}={inner.get('version', '*')}={inner.get('build', '*')}"
    match = re.match(r"([\w.-]+)\s*(.*)", text)
    if match is None:
        return Wanted(name=text, line=word.line, raw=word.raw)
    rest = re.match(r"(===?|=|[<>!~]=?)?\s*([\w.*]+)?(?:(?:\s*=\s*|\s+)([\w.*]+))?", match[2])
    sign, number, build = (rest[1], rest[2], rest[3]) if rest else (None, None, None)
    specifier = ""
    if number and sign in ("=", "==", None) and number != "*":
        clean = number.rstrip("*").rstrip(".")
        specifier = f"=={clean}" if sign == "==" or clean.count(".") > 1 else f"=={clean}.*"
    elif number and sign and "," in match[2]:
        specifier = re.sub(r"\s+", "", match[2]).rstrip("*").rstrip(".")
    elif number and sign:
        specifier = sign + number.rstrip("*").rstrip(".")
    elif label := cuda_in(channel, least=2):
        specifier = f"=={label}"
    return Wanted(
        name=canonical_name(match[1]), line=word.line, raw=word.raw, requirement=specifier, build=build or "",
        source=None,
    )  # fmt: skip


def _name_of(text: str) -> str:
    egg = re.search(r"[#&]egg=([\w.-]+)", text)
    if egg:
        return canonical_name(egg[1])
    sub = re.search(r"#subdirectory=([^&\s]+)", text)
    plain = re.split(r"[@#]", re.sub(r"^(?:git\+)?\w+://(?:[^/@]*@)?", "", text))[0]
    last = [part for part in re.split(r"[\\/]", plain) if part and part not in (".", "..")]
    name = last[-1] if last else "."
    if sub:
        return canonical_name(name.removesuffix(".git")) + "#" + sub[1]
    return canonical_name(name.removesuffix(".git").removesuffix(".whl")) or "."


def listed(text: str, line: int | None = None) -> list[Word]:
    """The words of a list of requirements, as if they stood behind `pip install`. `line`: where all of them stand."""
    words: list[Word] = []
    rows = text.split("\n")
    at = 0
    while at < len(rows):
        first, row = at + 1, rows[at]
        while row.endswith("\\") and at + 1 < len(rows):
            at += 1
            row = row[:-1] + rows[at]
        at += 1
        row = re.sub(r"(?:^|\s)#.*", "", row).strip()
        if not row:
            continue
        if row.startswith("-"):
            option, _, value = row.partition(" ")
            parts = [option, *([value.strip()] if value.strip() else [])]
        else:
            parts = [re.split(r"\s--?[a-z]", row)[0]]  # options behind a requirement are its own, or pip skips them
        words += [Word(part, part, line or first) for part in parts]
    return words


def complete(version: str) -> str:
    """`2.1` is the release 2.1.0 to pip and conda."""
    return version if version.count(".") > 1 else f"{version}.0"


def exact_text(specifier: str | None) -> str | None:
    """The one release that a requirement names, as it is written there (`0.0.28.post1`), without its local part."""
    match = re.fullmatch(r"===?([\w.]+)(?:\+[\w.]+)?", specifier or "")
    return match[1] if match else None


def exact_version(specifier: str | None) -> Version | None:
    """The release that one clause pins, where no other clause speaks against it: `==2.1.0,<3`."""
    pin = r"\s*===?\s*v?(\d{1,9}(?:\.\d{1,9}){1,7})(?:\.\*)?(?:\+\w[\w.]*)?\s*"
    clauses = (specifier or "").split(",")
    match = next((found for each in clauses if (found := re.fullmatch(pin, each))), None)
    return Version(match[1]) if match and (len(clauses) == 1 or not excludes(specifier, match[1])) else None


@lru_cache(maxsize=4096)
def excludes(specifier: str | None, version: str) -> bool:
    """Whether a version is outside of what was asked for; what cannot be read excludes nothing."""
    from packaging.specifiers import SpecifierSet

    try:
        return not SpecifierSet(re.sub(r"\+[\w.]+", "", specifier or "")).contains(version, prereleases=True)
    except ValueError:  # also for a number of five thousand digits
        return False


def by_caret(version: str) -> str:
    """`^2.1` of poetry as pip writes it."""
    if version in ("*", ""):
        return ""
    match = re.fullmatch(r"\^\s*v?(\d{1,9})((?:\.\d{1,9}){0,6})(\+\w+)?", version)
    if match:
        top = f"{int(match[1]) + 1}" if match[1] != "0" or not match[2] else f"0.{int(match[2].split('.')[1]) + 1}"
        return f">={match[1]}{match[2]},<{top}"
    if re.fullmatch(r"~\s*\d[\d.]*", version):
        parts = version[1:].strip().split(".")
        top = f"{parts[0]}.{int(parts[1]) + 1}" if len(parts) > 1 else f"{int(parts[0]) + 1}"
        return f">={'.'.join(parts)},<{top}"
    return version if version[:1] in "<>=!~" else f"=={version}"
