"""The newest Python has no wheels of google-re2 and isal at first: the same answers without them."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from rekindle.core import regex_fallback
from rekindle.core.regex import re2
from rekindle.knowledge.logs.signatures import causes


@pytest.mark.parametrize(
    ("pattern", "same"),
    [
        (r"a$", r"a\Z"),
        (r"(?m:a$|b)$", r"(?m:a$|b)\Z"),
        (r"x|(?i)y|z", r"x|(?i:y|z)"),
        (r"(a(?i)b)c", r"(a(?i:b))c"),
        (r"[$\x{201c}']\x{2019}\z", "[$“']’\\Z"),
        (r"[^]$]", r"[^]$]"),
    ],
)
def test_patterns_are_rewritten_where_the_engines_differ(pattern: str, same: str) -> None:
    assert regex_fallback.translate(pattern) == same
    re.compile(same)


@pytest.mark.long
def test_both_engines_find_the_same_in_every_signature() -> None:
    """Each pattern of the catalogue against the lines that the others are about."""
    patterns = [pattern for cause in causes() for signature in cause.signature for pattern in signature.match]
    said = [signature.example for cause in causes() for signature in cause.signature]
    lines = random.Random(5).sample(said, min(60, len(said)))
    for pattern in patterns:
        first, second = re2.compile(pattern), regex_fallback.compile(pattern)
        for line in lines:
            found, again = first.search(line), second.search(line)
            assert (found is None) == (again is None), (pattern, line)
            if found is not None and again is not None:
                assert found.span() == again.span(), (pattern, line)


@pytest.mark.long
def test_diagnose_works_without_them(tmp_path: Path) -> None:
    log = tmp_path / "build.log"
    log.write_text(
        "nvcc fatal   : Unsupported gpu architecture 'compute_35'\nninja: build stopped: subcommand failed.\n"
    )
    answers = []
    for taken_away in ((), ("re2", "isal")):
        script = (
            "import sys\n"
            f"for name in {taken_away!r}: sys.modules[name] = None\n"
            "from rekindle.cli.main import main\n"
            f"sys.argv = ['rekindle', 'diagnose', {str(log)!r}, '--json']\n"
            "main()\n"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        answers.append((done.returncode, json.loads(done.stdout)))
    assert answers[0] == answers[1] and answers[0][0] == 8


def test_zlib_stands_in_for_isal() -> None:
    script = (
        "import sys; sys.modules['isal'] = None\n"
        "from rekindle.formats.compression import engine\n"
        "assert engine().__name__ == 'zlib', engine()\n"
        "packer = engine().compressobj(2, 8, -15)\n"
        "sys.stdout.buffer.write(packer.compress(b'rekindle' * 99) + packer.flush())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert zlib.decompress(done.stdout, -15) == b"rekindle" * 99


@pytest.mark.parametrize("frames", [1, 3])
def test_zstandard_is_read_frame_after_frame_and_damage_is_told(frames: int) -> None:
    import io

    import zstandard

    from rekindle.formats.compression import zstd_error, zstd_opened

    plain = bytes(range(256)) * 5000
    packed = zstandard.compress(plain)
    assert zstd_opened(io.BytesIO(packed * frames)).read() == plain * frames
    with pytest.raises(zstd_error()):
        zstd_opened(io.BytesIO(packed[:4] + b"\xff" * 40)).read()


@pytest.mark.long
def test_no_line_is_too_long_for_the_other_engine() -> None:
    """Python's engine takes time with the square of a line's length: a line of four megabytes is cut before it."""
    script = (
        "import sys\nsys.modules['re2'] = None\n"
        "from rekindle.core.regex import LONGEST\n"
        "from rekindle.diagnose.diagnosis import diagnose_text\n"
        "from rekindle.diagnose.scan import scan\n"
        "log = b'x_y' * 1_000_000 + b'\\nOSError: CUDA_HOME environment variable is not set.\\n'\n"
        "assert max(len(line.text) for line in scan([log]).lines) <= LONGEST + 5, LONGEST\n"
        "print(diagnose_text(log).causes[0].label)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "cuda_home_unset", done.stderr
