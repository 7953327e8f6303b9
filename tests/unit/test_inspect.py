"""`rekindle inspect` as a person meets it."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from rekindle.cli.main import run
from rekindle.core.errors import BadInput, NotFound, UnknownName
from support import small_wheels
from support.command import rekindle_command
from support.fatbins import container


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A torch wheel in small: two libraries, one of which has no code for a Turing card."""
    path = tmp_path / "torch-2.11.0-cp311-cp311-linux_x86_64.whl"
    files = {
        "torch/version.py": "__version__ = '2.11.0+cu130'\ncuda: Optional[str] = '13.0'\n",
        "torch/lib/libtorch_cuda.fatbin": container("sm_75", "sm_80", "sm_90") * 4 + container("sm_90a"),
        "torch/lib/libtorch_cuda_linalg.fatbin": container("sm_80", "sm_90") * 3,
        "torch/lib/libcusparseLt-f8b4.so.0": container("sm_80", "sm_90"),
        "torch-2.11.0.dist-info/METADATA": "Name: torch\nVersion: 2.11.0\nRequires-Dist: nvidia-cudnn-cu13==9.17.1.4\n",
        "torch-2.11.0.dist-info/WHEEL": "Wheel-Version: 1.0\nTag: cp311-cp311-linux_x86_64\n",
    }
    record = "".join(f"{name},,{len(data)}\n" for name, data in files.items()) + "torch-2.11.0.dist-info/RECORD,,\n"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {**files, "torch-2.11.0.dist-info/RECORD": record}.items():
            archive.writestr(name, data)
    return path


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = run(["inspect", *words])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_json_has_the_promised_keys(wheel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = answer(capsys, str(wheel), "--json")
    found = json.loads(out)
    assert code == 0
    assert found["schema"] == "rekindle.inspect/1"
    assert (found["kind"], found["torch"], found["cuda"], found["cudnn"]) == (
        "wheel",
        "2.11.0+cu130",
        "13.0",
        "9.17.1.4",
    )
    assert set(found["min_driver"]) == {"linux", "windows"}
    main = found["gpu_code"][0]
    assert main["file"] == "torch/lib/libtorch_cuda.fatbin"
    assert main["containers"] == 5
    assert main["targets"] == {"sm_75": 4, "sm_80": 4, "sm_90": 4, "sm_90a": 1}
    assert found["targets"] == {"sm_75": 4, "sm_80": 7 + 1, "sm_90": 7 + 1, "sm_90a": 1}
    assert {item["id"] for item in found["findings"]} >= {"record"}


def test_one_library_without_the_code_makes_it_partial(wheel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = answer(capsys, str(wheel), "--json")
    found = json.loads(out)
    assert found["coverage"]["7.5"] == "PARTIAL"
    assert found["coverage"]["8.6"] == "SERVES"
    assert found["coverage"]["6.1"] == "NO"
    per_file = {code["file"]: code["coverage"]["7.5"]["coverage"] for code in found["gpu_code"]}
    assert per_file["torch/lib/libtorch_cuda.fatbin"] == "SERVES"
    assert per_file["torch/lib/libtorch_cuda_linalg.fatbin"] == "NO"


def test_nvidias_library_inside_does_not_decide(wheel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = answer(capsys, str(wheel), "--json")
    counted = {code["file"]: code["counted"] for code in json.loads(out)["gpu_code"]}
    assert counted["torch/lib/libcusparseLt-f8b4.so.0"] is False
    assert counted["torch/lib/libtorch_cuda.fatbin"] is True


def test_the_card_that_was_asked_for_is_answered_by_name(wheel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = answer(capsys, str(wheel), "--gpu", "RTX 2080 Ti", "--gpu", "sm_90")
    assert "GeForce RTX 2080 Ti (7.5): PARTIAL" in out
    assert "torch/lib/libtorch_cuda_linalg.fatbin: NO, 0 of 3" in out
    assert "sm_90 (9.0): SERVES" in out
    assert max(map(len, out.splitlines())) <= 80


def test_a_single_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "kernel.fatbin"
    path.write_bytes(container("sm_80", "compute_80"))
    code, out, _ = answer(capsys, str(path), "--json", "--gpu", "H200")
    found = json.loads(out)
    assert (code, found["kind"]) == (0, "fatbin")
    assert found["cards"][0]["coverage"] == "SERVES"
    assert found["cards"][0]["by_jit"] is True
    assert "9.0" in found["by_jit"]


def test_a_fail_is_an_exit_code(wheel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It printed FAIL and ended with 0."""
    code, out, _ = answer(capsys, str(wheel), "--gpu", "RTX 2080 Ti")
    assert (code, "FAIL" in out) == (8, True)
    code, out, _ = answer(capsys, str(wheel), "--gpu", "H200")
    assert (code, "FAIL" in out) == (0, False)


def test_a_folder_reads_like_the_wheel(wheel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "site-packages"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    (folder / "torch" / "__init__.py").write_text("", encoding="utf-8")
    whole, inner = (json.loads(answer(capsys, str(p), "--json")[1]) for p in (folder, folder / "torch"))
    packed = json.loads(answer(capsys, str(wheel), "--json")[1])
    for found in (whole, inner):
        assert sorted(c["file"] for c in found["gpu_code"]) == sorted(c["file"] for c in packed["gpu_code"])
        assert (found["torch"], found["coverage"]) == (packed["torch"], packed["coverage"])
    assert inner["kind"] == "installed"


def test_a_stale_record_is_found(wheel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, str(wheel), "--check")[0] == 0
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("torch/lib/added.txt", "by hand")
    _, out, _ = answer(capsys, str(wheel), "--json")
    found = next(item for item in json.loads(out)["findings"] if item["id"] == "record")
    assert found["state"] == "WARN"
    assert "torch/lib/added.txt" in found["found"]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["nothing-here.whl"], NotFound),
        (["{bad}"], BadInput),
        (["{text}"], BadInput),
        (["{fatbin}", "--gpu", "no such card"], UnknownName),
    ],
)
def test_mistakes_get_a_message_and_their_own_code(
    words: list[str], error: type[Exception], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.whl").write_bytes(b"PK\3\4 not a zip")
    (tmp_path / "notes.txt").write_text("hello", encoding="utf-8")
    (tmp_path / "k.fatbin").write_bytes(container("sm_80"))
    places = {"bad": tmp_path / "bad.whl", "text": tmp_path / "notes.txt", "fatbin": tmp_path / "k.fatbin"}
    code, out, err = answer(capsys, *(word.format(**places) for word in words))
    assert code == error.exit_code  # type: ignore[attr-defined]
    assert out == ""
    assert err.startswith("error:") and "hint:" in err


@pytest.mark.parametrize(
    ("name", "text", "runs"),
    [
        ("x.pth", b"import os; os.system('id')\n", True),
        ("x.pth", b"/somewhere\r\nimport\tx\r\n", True),
        ("x.pth", b"../lib\n# import os\n", False),
        ("demo-1.0.data/purelib/x.pth", b"\xef\xbb\xbfimport x\n", True),
        ("sitecustomize.py", b"", True),
        ("demo/sitecustomize.py", b"", False),
    ],
)
def test_what_runs_without_an_import_is_named(tmp_path: Path, name: str, text: bytes, runs: bool) -> None:
    """Whoever asks whether a friend's wheel is safe is told of it before anything is installed."""
    files = {
        name: text,
        "demo-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n",
        "demo-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    wheel = str(small_wheels.make(tmp_path, files, name="demo-1.0-py3-none-any.whl"))
    said = "code that runs whenever Python starts"
    for words in (("inspect",), ("verify", "--no-run")):
        assert (said in " ".join(rekindle_command(*words, wheel).out.split())) is runs
    assert (said in rekindle_command("shelf", "add", wheel, "--shelf", str(tmp_path / "shelf")).err) is runs


@pytest.mark.parametrize(("project", "state"), [("torch", "FAIL"), ("other", "UNVERIFIED")])
def test_no_gpu_code_is_not_gpu_code_that_fails(tmp_path: Path, project: str, state: str) -> None:
    """A library without any was a FAIL for every card: `none of its GPU code runs`."""
    info = f"{project}-1.0.0.dist-info"
    files = {
        f"{project}/version.py": "__version__ = '1.0.0'\ncuda = None\n",
        f"{info}/METADATA": f"Name: {project}\nVersion: 1.0.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,{len(data)}\n" for name, data in files.items()) + f"{info}/RECORD,,\n"
    path = tmp_path / f"{project}-1.0.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(name, data)
    found = rekindle_command("inspect", str(path), "--gpu", "H200", "--json").json()
    assert [each["state"] for each in found["findings"] if each["id"] == "gpu"] == [state]


def test_a_torch_without_gpu_code_is_not_told_that_it_lacks_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`there is no GPU code that it could lack` stood above `it does not use` the card."""
    path = tmp_path / "torch-2.11.0-cp311-cp311-linux_x86_64.whl"
    info = "torch-2.11.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("torch/version.py", "__version__ = '2.11.0+cpu'\n")
        archive.writestr(f"{info}/METADATA", "Name: torch\nVersion: 2.11.0+cpu\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: cp311-cp311-linux_x86_64\n")
        archive.writestr(f"{info}/RECORD", "")
    code, out, _ = answer(capsys, str(path), "--gpu", "GTX 1060")
    assert code == 8 and "it does not use GeForce GTX 1060" in " ".join(out.split())
    assert "could lack" not in out
