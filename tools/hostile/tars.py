"""Source tarballs with links, names and sizes that no release has."""

from __future__ import annotations

import gzip
import io
import random
import tarfile

NAMES = (
    "t/a", "t/x/y/z/s", "t/../../up", "/abs", "t/.rekindle/patches/next", "t/.git/config", "t/a/b", "u/other",
    "t/\x1b[2J",
    "t/c:\\x", "t/CON", "t/" + "d/" * 200 + "f", "t/" + "n" * 300,
)  # fmt: skip
KINDS = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE)
LINKS = ("a", "../../..", "../..", "/etc", "x/y/z/s", "s", "..", ".", "x/y/z/s/passwd", "C:\\x")


def made(dice: random.Random) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=dice.choice([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])) as tar:
        _add(tar, "t/version.txt", b"2.7.1")
        for name in dice.choices(NAMES, k=dice.randrange(1, 8)):
            kind = dice.randrange(5)
            if kind < 2:
                _add(tar, name, b"x" * dice.choice([0, 10, 5000]))
                continue
            info = tarfile.TarInfo(name)
            info.type = dice.choice(
                [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE]
            )
            info.linkname = dice.choice(LINKS)
            tar.addfile(info)
        if dice.random() < 0.005:
            _add(tar, "t/zeros", bytes(dice.choice([1 << 20, 90 << 20])))
        if dice.random() < 0.02:
            deep = "d/" * dice.choice([0, 0, 40])
            for number in range(dice.choice([100, 3000, 30_000])):
                _add(tar, f"t/m{number}{'/' if deep else ''}{deep}{'f' if deep else ''}", b"")
    data = stream.getvalue()
    if dice.random() < 0.02:
        data = _chain(dice) + data
    if dice.random() < 0.2:
        data = data[: dice.randrange(len(data))]
    return gzip.compress(data, 1)


def _chain(dice: random.Random) -> bytes:
    """Headers that announce the next header, or hold more than a name."""
    info = tarfile.TarInfo("x")
    info.type = dice.choice([tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE])
    body = dice.choice([b"t/a\0", b"12 path=t/a\n", b"".join(b"11 k%04d=v\n" % (n % 9999) for n in range(5000))])
    info.size = len(body)
    one = info.tobuf(tarfile.GNU_FORMAT) + body + bytes(-len(body) % 512)
    return one * dice.choice([1, 5, 300, 2000])


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))
