"""A number of five thousand digits: a version to packaging, and to Python's `int` an error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import rekindle
from rekindle import api
from rekindle.core.errors import UsageError
from rekindle.diagnose.diagnosis import diagnose_text
from rekindle.knowledge.logs import signatures
from rekindle.machine.python.environment import find
from rekindle.model.wheel import WheelIdentity, python_of, tagged_glibc
from rekindle.wheels.inspect.identity import admits, cuda_of
from rekindle.wheels.verify.verify import verify
from support import small_wheels

LONG = "9" * 5000


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("requirements.txt", f"torch=={LONG}\n"),
        ("requirements.txt", f"torch>={LONG},<{LONG}\nnumpy<{LONG}\n"),
        ("a.sh", f"pip install torch=={LONG}\n"),
        ("a.bat", f"pip install torch=={LONG}\n"),
        ("a.ps1", f"pip install torch=={LONG}\n"),
        ("Dockerfile", f"FROM python:3.11\nRUN pip install torch=={LONG}\n"),
        ("environment.yml", f"dependencies:\n  - python={LONG}\n  - pytorch={LONG}\n"),
        ("pyproject.toml", f'[project]\nname = "x"\ndependencies = ["torch=={LONG}"]\n'),
        (
            "b.sh",
            f"git clone https://github.com/pytorch/pytorch\nMAX_JOBS={LONG} CC=gcc-{LONG} python setup.py build",
        ),
        ("c.sh", f"module load gcc/{LONG}\ngit clone -b v2.1.0 https://github.com/pytorch/pytorch\nninja -j{LONG}\n"),
        ("b.bat", f"set A=x\necho %A:~{LONG},{LONG}%\npip install torch\n"),
        ("Dockerfile", f"FROM nvidia/cuda:12.1.0-cudnn{LONG}-devel\nRUN pip install torch nvidia-cudnn-cu{LONG}\n"),
    ],
    ids=range(12),
)
def test_a_script_with_one_is_reviewed(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    api.review([tmp_path / name], gpus=["GTX 1080"], os="linux")


@pytest.mark.parametrize(
    "tag", [f"cp3{LONG}-abi3-linux_x86_64", f"py3-none-manylinux_{LONG}_1_x86_64", "cp3²-abi3-any"]
)
def test_a_wheel_whose_tags_have_one_is_judged(tmp_path: Path, tag: str) -> None:
    files = {
        "demo-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n",
        "demo-1.0.dist-info/WHEEL": f"Wheel-Version: 1.0\nTag: {tag}\n".encode(),
    }
    wheel = small_wheels.make(tmp_path, files, name="demo-1.0-py3-none-any.whl")
    assert verify(wheel, run=False).state.value == "FAIL"
    interpreter, _, platform = tag.split("-", 2)
    assert python_of(interpreter) is None and tagged_glibc(platform) is None


@pytest.mark.parametrize("label", [f"cu{LONG}", "cu12²"], ids=range(2))
def test_a_label_with_one_names_no_cuda(label: str) -> None:
    assert cuda_of(WheelIdentity(version=f"1.0+{label}")) is None
    assert cuda_of(WheelIdentity(version=f"1.0+{label}.cu118")) is not None
    assert admits(["torch>=2"], LONG)


@pytest.mark.parametrize("wish", [LONG, f">={LONG}", f"2.{LONG}"], ids=range(3))
def test_a_wish_with_one_is_no_version(wish: str) -> None:
    with pytest.raises(UsageError, match=r"is not a (version number|range of versions)"):
        api.plan(gpus=["GTX 1080"], os="linux", torch=wish)


def _stretched(every: list[str], number: str) -> Iterator[str]:
    for text in every:
        for match in re.finditer(r"\d+", text):
            yield f"{text[: match.start()]}{number}{text[match.end() :]}"


EXAMPLES = [each.example for cause in signatures.causes() for each in cause.signature]


@pytest.mark.parametrize("every", [EXAMPLES[::25], pytest.param(EXAMPLES, marks=pytest.mark.long)], ids=["some", "all"])
@pytest.mark.parametrize("number", ["7" * 12, "9" * 5000, "1." * 12 + "1"], ids=["twelve", "thousands", "parts"])
def test_no_number_of_a_log_is_an_error_of_ours(every: list[str], number: str) -> None:
    """One try in seventeen was an internal error of `diagnose`."""
    for text in _stretched(every, number):
        assert diagnose_text(text.encode()).summary


def test_a_version_of_a_log_is_still_read() -> None:
    found = diagnose_text(b"torch 2.7.1+cu118\nRuntimeError: CUDA error: no kernel image is available\n")
    assert found.facts["torch"] == "2.7.1"


# Of what these read no number is made.
_NAMES = ("redact.py", "cards.py", "platforms.py", "report.py")
_CAPTURED = re.compile(r"(?<!\\)\((?:\?P<\w+>)?(?!\?)[^()\"']*\\d\+")


def test_every_number_that_is_read_has_an_end() -> None:
    """Eleven digits of a `pyvenv.cfg`, five thousand behind `-j`: of fifty patterns that capture one."""
    found = [
        f"{path.name}: {line.strip()}"
        for path in sorted(Path(rekindle.__file__).parent.rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if _CAPTURED.search(line) and path.name not in _NAMES
    ]
    assert not found


@pytest.mark.parametrize(
    "place", ["pyvenv.cfg", "lib/python3.12345678901/site-packages/x", "conda-meta/python-3.1234567890.1-x.json"]
)
def test_an_environment_with_one_is_of_no_version(tmp_path: Path, place: str) -> None:
    (tmp_path / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / place).write_text("home = /usr/bin\nversion = 3.12345678901\n", encoding="utf-8")
    assert str(find(tmp_path).python) in ("3.11", "None")
