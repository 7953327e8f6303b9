"""The catalogue held against a tree: what applies, what it would change, changing it, and changing it back.

The versions that a CMake file asks for are read as CMake itself reads them: `cmake_minimum_required(VERSION 2.8)` may
be written in any letter case, over several lines, with comments between its arguments; the same words inside a
string, a bracket argument, a comment or another command's arguments mean nothing. Only the bytes of the version are
replaced.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from pathlib import Path

import msgspec

from rekindle.core import files
from rekindle.core.errors import PatchMismatch
from rekindle.core.version import Version
from rekindle.knowledge.torch import patches as catalogue
from rekindle.knowledge.torch.patches import Judgement, Need, Patch, PatchSetting
from rekindle.source import edits, tree
from rekindle.source.journal import PatchJournal

_CONTEXT = 3


def unified(path: str, before: bytes, after: bytes) -> str:
    """The diff of one file, with `a/` and `b/` before its path; empty when nothing changed.

    `git apply` and `patch -p1` take it.
    """
    if before == after:
        return ""
    old, new = (re.findall(rb"[^\n]*\n|[^\n]+", data) for data in (before, after))
    most = min(len(old), len(new))
    head = next((at for at in range(most) if old[at] != new[at]), most)
    tail = next((at for at in range(most - head) if old[-1 - at] != new[-1 - at]), most - head)
    old_end, new_end = len(old) - tail, len(new) - tail
    found = difflib.SequenceMatcher(None, old[head:old_end], new[head:new_end], autojunk=False)
    # What both begin and end with stays context, however the rest is paired: `patch` takes a hunk with less context
    # behind it than before it for one at the end of the file.
    codes = found.get_opcodes()
    codes[:] = [(kind, a + head, b + head, c + head, d + head) for kind, a, b, c, d in codes]
    codes[:] = [("equal", 0, head, 0, head), *codes, ("equal", old_end, len(old), new_end, len(new))]
    lines = [f"--- a/{path}\n", f"+++ b/{path}\n"]
    for group in found.get_grouped_opcodes(_CONTEXT):
        (_, first, _, put, _), (_, _, last, _, put_last) = group[0], group[-1]
        lines.append(f"@@ -{_span(first, last)} +{_span(put, put_last)} @@\n")
        for kind, a, b, c, d in group:
            lines += [_line(" " if kind == "equal" else "-", line) for line in old[a:b]]
            lines += [_line("+", line) for line in new[c:d]] if kind != "equal" else []
    return "".join(lines)


def _span(start: int, end: int) -> str:
    return f"{start + 1 if end > start else start},{end - start}"


def _line(sign: str, line: bytes) -> str:
    text = sign + line.decode("utf-8", "surrogateescape")
    return text if text.endswith("\n") else f"{text}\n\\ No newline at end of file\n"


class PatchState(str, Enum):
    """Where a tree stands with a patch."""

    APPLIES = "applies"
    APPLIED = "applied"
    FIXED = "fixed"
    NOT_NEEDED = "not-needed"
    ASKED = "only-when-asked"
    UNVERIFIED = "unverified"
    OPTION = "option"
    ABSENT = "absent"
    MISMATCH = "mismatch"


class PatchStanding(msgspec.Struct, frozen=True, kw_only=True):
    """`files` are those the patch changes, has changed, or should have changed."""

    id: str
    state: PatchState
    files: tuple[str, ...] = ()
    reason: str = ""


class UnreadFile(msgspec.Struct, frozen=True, kw_only=True):
    """A place that could not be looked at, so nothing is claimed about it."""

    file: str
    reason: str


class PatchReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `rekindle patch` says. `kept` are files that someone edited after they were patched."""

    schema: str = "rekindle.patch/1"
    root: str
    torch: str
    action: str
    patches: tuple[PatchStanding, ...] = ()
    changed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    unreadable: tuple[UnreadFile, ...] = ()
    diff: str | None = None


def _standing(patch: Patch, state: PatchState, reason: str, paths: tuple[str, ...] = ()) -> PatchStanding:
    return PatchStanding(id=patch.id, state=state, files=paths, reason=reason)


class Assessment(msgspec.Struct, frozen=True, kw_only=True):
    """A tree looked at without being touched: the standings, and for each file to change its bytes before and after."""

    standings: tuple[PatchStanding, ...]
    changes: dict[str, tuple[bytes, bytes, tuple[str, ...]]]
    unreadable: tuple[UnreadFile, ...]


def assess(root: Path, setting: PatchSetting, *, only: Sequence[str] = ()) -> Assessment:
    """Look at every patch (or those named) in the tree; nothing is written."""
    judgements = [catalogue.judge(catalogue.patch(id), setting) for id in only] or list(catalogue.judged(setting))
    desk = _Desk(root, setting)
    standings = [desk.consider(judgement, named=bool(only)) for judgement in judgements]
    return Assessment(standings=tuple(standings), changes=desk.changes(), unreadable=tuple(desk.unread))


def show(root: Path, setting: PatchSetting, *, only: Sequence[str] = (), diffs: bool = False) -> PatchReport:
    """`--list`, and with `diffs` the dry run."""
    found = assess(root, setting, only=only)
    if diffs:
        refuse_mismatches(found.standings)
    text = "".join(unified(path, before, after) for path, (before, after, _) in found.changes.items())
    return PatchReport(
        root=str(root),
        torch=str(setting.torch),
        action="dry-run" if diffs else "list",
        patches=found.standings,
        changed=tuple(found.changes) if diffs else (),
        unreadable=found.unreadable,
        diff=text if diffs else None,
    )


def apply(root: Path, setting: PatchSetting, *, only: Sequence[str] = ()) -> PatchReport:
    """Make every edit that is called for, or none."""
    with PatchJournal.open(root) as journal:
        found = assess(root, setting, only=only)
        refuse_mismatches(found.standings)
        wanted = {}
        for path, (_, after, ids) in found.changes.items():
            earlier = journal.entry(path)
            wanted[path] = (after, tuple(dict.fromkeys([*(earlier.patches if earlier else ()), *ids])))
        changed = journal.exchange(wanted) if wanted else []
    done = tuple(
        msgspec.structs.replace(one, state=PatchState.APPLIED) if one.state is PatchState.APPLIES else one
        for one in found.standings
    )
    return PatchReport(
        root=str(root), torch=str(setting.torch), action="apply", patches=done, changed=tuple(changed),
        unreadable=found.unreadable,
    )  # fmt: skip


def undo(root: Path, setting: PatchSetting) -> PatchReport:
    """Every file that was patched back to its original bytes, except those that someone has edited since."""
    with PatchJournal.open(root) as journal:
        restored, kept = journal.restore()
    return PatchReport(
        root=str(root), torch=str(setting.torch), action="undo", changed=tuple(sorted(restored)), kept=tuple(kept)
    )


def made_by(ids: Iterable[str], path: str, data: bytes) -> Iterator[bytes]:
    """What patches of the catalogue make of one file, one after the other; a journal can name any."""
    for patch in (each for id in ids for each in catalogue.patches() if each.id == id):
        for edit in patch.edit:
            data = edits.make(data, edit).data if edit.file == path else data
        if patch.cmake_minimum is not None and tree.is_cmake(path.rpartition("/")[2]):
            data = raised_minimum(data, patch.cmake_minimum.floor)
        yield data


def refuse_mismatches(standings: Sequence[PatchStanding]) -> None:
    wrong = [one for one in standings if one.state is PatchState.MISMATCH]
    if wrong:
        lines = "\n".join(f"  {one.id}: {one.reason}" for one in wrong)
        message = f"the tree is not as {'this patch expects' if len(wrong) == 1 else 'these patches expect'}:\n{lines}"
        hint = (
            "nothing was changed; check that `--torch` names this tree's release, or leave a patch out by naming "
            "the others with `--only`"
        )
        raise PatchMismatch(message, hint=hint)


class _Desk:
    """The files that patches look at, each read once, and as the patches considered so far would leave them."""

    def __init__(self, root: Path, setting: PatchSetting) -> None:
        self.root = root
        self.setting = setting
        self.unread: list[UnreadFile] = []
        self._before: dict[str, bytes] = {}
        self._after: dict[str, bytes] = {}
        self._by: dict[str, list[str]] = {}

    def changes(self) -> dict[str, tuple[bytes, bytes, tuple[str, ...]]]:
        return {path: (self._before[path], self._after[path], tuple(by)) for path, by in sorted(self._by.items())}

    def consider(self, judgement: Judgement, *, named: bool) -> PatchStanding:
        patch = judgement.patch
        if judgement.need is Need.NO:
            return _standing(patch, PatchState.NOT_NEEDED, judgement.reason)
        if judgement.need is Need.ASKED and not (named and patch.edits):
            state = PatchState.UNVERIFIED if patch.unverified else PatchState.ASKED
            return _standing(patch, state, judgement.reason)
        if patch.cmake_minimum is not None:
            return self._minimum(patch, judgement.reason)
        if patch.edit:
            return self._edit(patch, judgement.reason)
        settings = ", ".join(f"{name}={value}" for name, value in {**patch.options, **patch.variables}.items())
        return _standing(patch, PatchState.OPTION, f"no edit: build with {settings}")

    def _edit(self, patch: Patch, reason: str) -> PatchStanding:
        wanted = [edit for edit in patch.edit if edit.torch is None or self.setting.torch in edit.torch]
        paths = tuple(dict.fromkeys(edit.file for edit in wanted))
        drafts: dict[str, bytes] = {}
        found: list[edits.Found] = []
        for edit in wanted:
            try:
                data = drafts[edit.file] if edit.file in drafts else self._read(edit.file)
            except OSError as error:
                empty = self._empty_above(edit.file)
                if isinstance(error, FileNotFoundError) and empty:
                    why = f"`{empty}` is empty; `rekindle source` brings the submodules"
                    return _standing(patch, PatchState.ABSENT, why, paths)
                why = f"`{edit.file}` cannot be read: {error.strerror or error}"
                return _standing(patch, PatchState.MISMATCH, why, paths)
            outcome = edits.make(data, edit)
            if outcome.found is edits.Found.MISMATCH:
                why = f"`{edit.file}`: {outcome.reason}"
                return _standing(patch, PatchState.MISMATCH, why, paths)
            drafts[edit.file] = outcome.data
            found.append(outcome.found)
        for path, data in drafts.items():
            self._draft(path, data, patch.id)
        if edits.Found.PENDING in found:
            return _standing(patch, PatchState.APPLIES, reason, paths)
        fixed = edits.Found.APPLIED not in found
        why = "this tree has upstream's own fix" if fixed else "its text is already in the tree"
        return _standing(patch, PatchState.FIXED if fixed else PatchState.APPLIED, why, paths)

    def _minimum(self, patch: Patch, reason: str) -> PatchStanding:
        rule = patch.cmake_minimum
        assert rule is not None
        try:
            if rule.fixed.encode("utf-8") in self._read(rule.fixed_in):
                why = f"`{rule.fixed_in}` deals with it itself"
                return _standing(patch, PatchState.FIXED, why)
        except OSError:
            pass  # not PyTorch's own tree; the rule holds for any
        below: list[str] = []
        for path in tree.cmake_files(self.root):
            try:
                data = self._after[path] if path in self._after else self._cmake(path)
            except OSError as error:
                self.unread.append(UnreadFile(file=path, reason=error.strerror or str(error)))
                continue
            if not mentions(data):
                continue
            for one in requirements(data):
                if one.version is None and not one.running:
                    self.unread.append(UnreadFile(file=path, reason=f"line {one.line}: `{one.text[:60]}` is no number"))
            raised = raised_minimum(data, rule.floor)
            if raised != data:
                self._before.setdefault(path, data)
                self._draft(path, raised, patch.id)
                below.append(path)
        if below:
            count = f"{len(below)} file{'s' if len(below) > 1 else ''} below {rule.floor}"
            return _standing(patch, PatchState.APPLIES, f"{count}; {reason}", tuple(sorted(below)))
        return _standing(patch, PatchState.APPLIED, f"nothing in the tree asks for less than {rule.floor}")

    def _cmake(self, path: str) -> bytes:
        return files.plain_bytes(self.root / path, limit=tree.LARGEST_CMAKE)

    def _read(self, path: str) -> bytes:
        if path not in self._after:
            data = files.plain_bytes(tree.place(self.root, path))
            self._before[path] = self._after[path] = data
        return self._after[path]

    def _draft(self, path: str, data: bytes, patch: str) -> None:
        if self._after.get(path, self._before[path]) != data:
            self._by.setdefault(path, []).append(patch)
        self._after[path] = data

    def _empty_above(self, path: str) -> str:
        """The submodule folder that should hold the file but is empty or missing."""
        parts = path.split("/")
        for depth in range(1, len(parts)):
            folder = self.root.joinpath(*parts[:depth])
            if not folder.is_dir() or not any(folder.iterdir()):
                return "/".join(parts[:depth]) if parts[0] == "third_party" else ""
        return ""


_NAMES = (b"cmake_minimum_required", b"cmake_policy")
# A comment (in brackets, or to the end of the line), and what an argument is: in brackets, in quotes, or plain.
_TOKEN = re.compile(
    rb"#\[(?P<level>=*)\[.*?(?:\](?P=level)\]|\Z)|#[^\n]*"
    rb"|\[(?P<own>=*)\[(?P<bracket>.*?)(?:\](?P=own)\]|\Z)"
    rb'|"(?P<quoted>[^"\\]*(?:\\.[^"\\]*)*)"?'
    rb'|(?P<open>\()|(?P<close>\))|(?P<plain>(?:[^\s()#"\\]|\\.)+)',
    re.DOTALL,
)
_CMAKE_CALL = re.compile(rb"[ \t]*\(")
_RUNNING = re.compile(rb"(?:\$\{CMAKE_(?:MAJOR_|MINOR_|PATCH_)?VERSION\}\.?)+\Z")
_CMAKE_RANGE = re.compile(rb"(\d{1,9}(?:\.\d{1,9}){1,3})(?:\.\.\.(\d{1,9}(?:\.\d{1,9}){1,3}))?\Z")


class CMakeRequirement(msgspec.Struct, frozen=True, kw_only=True):
    """One `VERSION` that a file asks for. `version` is None where it cannot be read, e.g. when it is a variable.

    In `<min>...<max>` CMake takes the policies of `<max>`, so that is the version which counts. `running` marks
    `${CMAKE_VERSION}` and its parts: whatever CMake it is that reads the file, never too old for itself.
    """

    command: str
    line: int
    text: str
    version: Version | None
    running: bool
    start: int
    end: int


def mentions(data: bytes) -> bool:
    """Whether the file can hold a requirement at all: quick, and never wrong about a no."""
    return any(name in data for name in _NAMES) or any(name in data.lower() for name in _NAMES)


def requirements(data: bytes) -> list[CMakeRequirement]:
    """Every version that the file asks for, in order."""
    found: dict[int, CMakeRequirement] = {}
    call, command, expecting = 0, "", False
    for depth, start, end in _words(data):
        if not depth:
            call, command, expecting = start, _command(data, start, end), False
        elif expecting:
            # Where a call says it twice, the last one counts.
            found[call], expecting = _requirement(data, command, start, end), False
        else:
            expecting = bool(command) and data[start:end] == b"VERSION"
    return list(found.values())


def raised_minimum(data: bytes, floor: Version) -> bytes:
    """The same file with every version below `floor` raised to it, and nothing else changed."""
    parts: list[bytes] = []
    done = 0
    for found in requirements(data):
        if found.version is not None and found.version < floor:
            parts += [data[done : found.start], str(floor).encode("ascii")]
            done = found.end
    return b"".join([*parts, data[done:]])


def _words(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Plain words outside of any call, and all arguments of calls: the depth of parentheses, and the span of its text
    without quotes or brackets around it. Reading ends with the last call that could matter."""
    lower = data.lower()
    last = max(lower.rfind(name) + len(name) for name in _NAMES)
    depth = position = 0
    while (depth or position <= last) and (token := _TOKEN.search(data, position)):
        position, kind = token.end(), token.lastgroup
        if kind == "bracket" and not depth:
            position = token.start() + 1  # a bracket opens an argument only inside a command
        elif kind in ("open", "close"):
            depth = max(0, depth + (1 if kind == "open" else -1))
        elif kind == "plain" or (depth and kind in ("bracket", "quoted")):
            yield depth, *token.span(kind)


def _command(data: bytes, start: int, end: int) -> str:
    """The command that is called there, if it is one of ours. It is the first thing on its line, apart from spaces and
    a byte-order mark; else CMake stops anyway."""
    name = data[start:end].removeprefix(b"\xef\xbb\xbf").lower()
    if name not in _NAMES:
        return ""
    before = data[data.rfind(b"\n", 0, start) + 1 : start]
    return name.decode("ascii") if not before.strip() and _CMAKE_CALL.match(data, end) else ""


def _requirement(data: bytes, command: str, start: int, end: int) -> CMakeRequirement:
    text = data[start:end]
    numbers = _CMAKE_RANGE.match(text)
    group = 2 if numbers and numbers.group(2) else 1
    return CMakeRequirement(
        command=command,
        line=data.count(b"\n", 0, start) + 1,
        text=text.decode("utf-8", "replace"),
        version=Version(numbers.group(group).decode("ascii")) if numbers else None,
        running=_RUNNING.match(text) is not None,
        start=start + numbers.start(group) if numbers else start,
        end=start + numbers.end(group) if numbers else end,
    )
