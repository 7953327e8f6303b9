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
        if dice.random() < 0.01:
            for number in range(dice.choice([100, 3000])):
                _add(tar, f"t/m{number}", b"")
    data = stream.getvalue()
    if dice.random() < 0.2:
        data = data[: dice.randrange(len(data))]
    return gzip.compress(data, 1)


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))
