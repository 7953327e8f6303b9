"""Static archives (`.a`, and the `.lib` of Windows): their members by name and place."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from rekindle.formats.access import Bytes, broken, exactly

MAGIC = b"!<arch>\n"
_MOST = 200_000


class ArchiveMember(msgspec.Struct, frozen=True, kw_only=True):
    """An object inside an archive; `offset` is where its contents begin."""

    name: str
    offset: int
    size: int


def parts(source: Bytes) -> Iterator[ArchiveMember]:
    """The objects of an archive, without its indexes. GNU, BSD and Microsoft spellings of long names."""
    if source.read(0, len(MAGIC)) != MAGIC:
        raise broken(source, "it is not a static archive")
    at = len(MAGIC)
    names = b""
    for _ in range(_MOST):
        if at + 60 > source.size:
            return
        header = exactly(source, at, 60, "an archive header")
        digits = header[48:58].strip()
        if header[58:] != b"`\n" or not digits.isdigit():
            raise broken(source, f"the archive header at {at:#x} is damaged")
        begin, size = at + 60, int(digits)
        if begin + size > source.size:
            raise broken(source, f"the archive member at {at:#x} would lie outside the file")
        name = header[:16].rstrip()
        at = begin + size + size % 2
        if name == b"//":
            names = source.read(begin, min(size, 64 << 20))
            continue
        if name in (b"/", b"/SYM64/", b"__.SYMDEF", b"/<ECSYMBOLS>/"):
            continue
        if name.startswith(b"#1/") and name[3:].isdigit():
            length = min(int(name[3:]), size, 4096)
            name = source.read(begin, length).rstrip(b"\0")
            begin, size = begin + length, size - length
        elif name[:1] == b"/" and name[1:].isdigit():
            at_name = int(name[1:])
            rest = names[at_name : at_name + 4096]
            name = rest[: min((i for i in (rest.find(b"\n"), rest.find(b"\0")) if i >= 0), default=len(rest))]
        yield ArchiveMember(name=name.rstrip(b"/").decode("utf-8", "replace"), offset=begin, size=size)
    raise broken(source, f"it has more than {_MOST} members")
