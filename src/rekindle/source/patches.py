"""The catalogue held against a tree: what applies, what it would change, changing it, and changing it back."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from enum import Enum
from pathlib import Path

import msgspec

from rekindle.core import files
from rekindle.core.errors import PatchMismatch
from rekindle.knowledge.torch import patches as catalogue
from rekindle.knowledge.torch.patches import Judgement, Need, Patch, PatchSetting
from rekindle.source import cmake, edits, tree
from rekindle.source.journal import PatchJournal

_CONTEXT = 3


def unified(path: str, before: bytes, after: bytes) -> str:
    """The diff of one file, with `a/` and `b/` before its path; empty when nothing changed.

    `git apply` and `patch -p1` take it, at a cost that follows the change and not the file.
    """
    if before == after:
        return ""
    head = _line_start(before, _common(before, after), _CONTEXT)
    tail = _common(before[head:][::-1], after[head:][::-1])
    old_end, new_end = _line_end(before, len(before) - tail), _line_end(after, len(after) - tail)
    if before[old_end:] != after[new_end:]:
        old_end, new_end = len(before), len(after)
    skipped = before.count(b"\n", 0, head)
    lines = [f"--- a/{path}\n", f"+++ b/{path}\n"]
    for hunk in _hunks(_lines(before[head:old_end]), _lines(after[head:new_end]), skipped):
        lines += hunk
    return "".join(lines)


def _hunks(old: list[str], new: list[str], skipped: int) -> list[list[str]]:
    found = []
    for group in _aligned(old, new).get_grouped_opcodes(_CONTEXT):
        first, last = group[0], group[-1]
        old_span = _span(first[1] + skipped, last[2] - first[1])
        new_span = _span(first[3] + skipped, last[4] - first[3])
        hunk = [f"@@ -{old_span} +{new_span} @@\n"]
        for tag, a, b, c, d in group:
            if tag == "equal":
                hunk += [_line(" ", line) for line in old[a:b]]
            else:
                hunk += [_line("-", line) for line in old[a:b]] + [_line("+", line) for line in new[c:d]]
        found.append(hunk)
    return found


def _aligned(old: list[str], new: list[str]) -> difflib.SequenceMatcher[str]:
    """The two aligned so that the last lines they share stay context.

    `patch` takes a hunk with less context behind it than before it for one at the end of the file. Left to itself the
    matcher may pair the first of several equal lines and call the last ones added.
    """
    same = 0
    while same < min(_CONTEXT, len(old), len(new)) and old[-1 - same] == new[-1 - same]:
        same += 1
    found = difflib.SequenceMatcher(None, old[: len(old) - same], new[: len(new) - same], autojunk=False)
    codes = found.get_opcodes()
    if same:
        begun, put = len(old) - same, len(new) - same
        if codes and codes[-1][0] == "equal":
            _, begun, _, put, _ = codes.pop()
        codes.append(("equal", begun, len(old), put, len(new)))
    return found


def _span(start: int, length: int) -> str:
    return f"{start + 1 if length else start},{length}"


def _line(sign: str, text: str) -> str:
    return f"{sign}{text}" if text.endswith("\n") else f"{sign}{text}\n\\ No newline at end of file\n"


def _lines(data: bytes) -> list[str]:
    return [line.decode("utf-8", "surrogateescape") for line in _split(data)]


def _split(data: bytes) -> list[bytes]:
    parts = data.split(b"\n")
    lines = [part + b"\n" for part in parts[:-1]]
    return [*lines, parts[-1]] if parts[-1] else lines


def _common(one: bytes, other: bytes) -> int:
    """How many bytes they begin with in common, by halving: comparing slices is fast, comparing bytes is not."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _line_start(data: bytes, at: int, lines_before: int) -> int:
    for _ in range(lines_before + 1):
        at = data.rfind(b"\n", 0, at)
        if at < 0:
            return 0
    return at + 1


def _line_end(data: bytes, at: int) -> int:
    for _ in range(_CONTEXT + 1):
        end = data.find(b"\n", at)
        if end < 0:
            return len(data)
        at = end + 1
    return at


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
            if not cmake.mentions(data):
                continue
            for one in cmake.requirements(data):
                if one.version is None and not one.running:
                    self.unread.append(UnreadFile(file=path, reason=f"line {one.line}: `{one.text[:60]}` is no number"))
            raised = cmake.raised(data, rule.floor)
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
