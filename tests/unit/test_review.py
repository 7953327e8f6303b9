"""`rekindle review`: what is wrong with hand-made scripts. The commands are those people really wrote, typed anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from rekindle.core.findings import State
from rekindle.core.version import Version
from rekindle.knowledge.gpu.capability import Capability
from rekindle.review.review import Reviewed, review_script
from rekindle.review.script import read
from support.command import rekindle_command

K40 = Capability.parse("3.5")
RTX_5070 = Capability.parse("12.0")
TOOLKITS = r"C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA"


def reviewed(
    text: str, name: str = "build.bat", *, gpu: Capability | None = None, torch: str | None = None
) -> Reviewed:
    return review_script(read(text, name=name), gpus=(gpu,) if gpu else (), torch=Version(torch) if torch else None)


def ids(
    text: str, name: str = "build.bat", *, gpu: Capability | None = None, torch: str | None = None
) -> dict[str, int]:
    """What is remarked, and the first line where."""
    found: dict[str, int] = {}
    for remark in reviewed(text, name, gpu=gpu, torch=torch).remarks:
        found.setdefault(remark.id, remark.line)
    return found


def corrected(text: str, what: str, name: str = "build.bat", *, torch: str | None = None) -> str | None:
    return next(remark.corrected for remark in reviewed(text, name, torch=torch).remarks if remark.id == what)


FIRST = f"""\
cmake .. -GNinja \\
-DUSE_CUDA=ON \\
-DUSE_DISTRIBUTED=OFF \\
-DCUDA_TOOLKIT_ROOT_DIR="{TOOLKITS}\\v12.3" \\
-DTORCH_CUDA_ARCH_LIST="8.9" \\
-DCMAKE_CUDA_ARCHITECTURES=89 \\
-DPython_EXECUTABLE="[venv_path]\\Scripts\\python.exe" \\
-DCMAKE_CUDA_FLAGS="-allow-unsupported-compiler" \\
-DCMAKE_CXX_FLAGS="/MP /O2" \\
-DUSE_NCCL=OFF
"""
FINAL = f"""\
@echo off
cmake .. -GNinja ^
-DCMAKE_BUILD_TYPE=Release ^
-DUSE_CUDA=ON ^
-DCUDA_TOOLKIT_ROOT_DIR="{TOOLKITS}\\v12.9" ^
-DTORCH_CUDA_ARCH_LIST="12.0" ^
-DCMAKE_CUDA_ARCHITECTURES=120 ^
-DCMAKE_CUDA_FLAGS="-allow-unsupported-compiler" ^
-DCMAKE_CXX_FLAGS="/MP /O2" ^
-DUSE_DISTRIBUTED=OFF ^
-DUSE_GLOO=OFF ^
-DBUILD_CAFFE2=OFF ^
-DUSE_CAFFE2=OFF ^
-DUSE_PTHREADPOOL=OFF ^
-DCAFFE2_USE_PTHREADPOOL=OFF ^
-DUSE_SYSTEM_PTHREADPOOL=OFF ^
-DCMAKE_CXX_USE_RESPONSE_FILE_FOR_OBJECTS=1
"""
KEPLER = f"""\
@echo off
setlocal EnableDelayedExpansion
pip install wheel six numpy pyyaml numpy==1.21.6
CALL "C:\\Program Files (x86)\\Microsoft Visual Studio\\2022\\Community\\VC\\Auxiliary\\Build\\vcvars64.bat"
set "CUDA_PATH={TOOLKITS}\\v11.4"
set "CUDA_TOOLKIT_ROOT_DIR=%CUDA_PATH%"
set "CUDA_ROOT=%CUDA_PATH%"
set TORCH_CUDA_ARCH_LIST=3.5
set CMAKE_ARGS=-DCMAKE_POLICY_VERSION_MINIMUM=3.5
set USE_CUPTI=0
set USE_AVX=0
set USE_MKL=0
cd C:\\Users\\%USERNAME%\\source\\pytorch
python -m build --wheel --no-isolation
rmdir /s /q build
pause
exit /b 0
"""


def test_the_wrong_architecture_is_refused() -> None:
    answer = reviewed(FIRST, gpu=RTX_5070)
    assert answer.refused
    found = ids(FIRST, gpu=RTX_5070)
    assert found["architecture-not-the-card"] == 5
    assert found["toolkit-not-for-the-card"] == 4
    assert corrected(FIRST, "continuation") == "cmake .. -GNinja ^"
    assert found["placeholder"] == 7


def test_twelve_four_cannot_serve_the_card_either() -> None:
    text = FIRST.replace("v12.3", "v12.4").replace(" \\\n", " ^\n")
    assert {"architecture-not-the-card", "toolkit-not-for-the-card"} <= ids(text, gpu=RTX_5070).keys()
    assert reviewed(text, gpu=RTX_5070).refused


def test_without_a_card_the_architecture_is_nobodys_fault() -> None:
    assert "architecture-not-the-card" not in ids(FIRST)


def test_the_final_script_is_accepted_with_its_faults_named() -> None:
    answer = reviewed(FINAL, gpu=RTX_5070)
    assert not answer.refused
    found = ids(FINAL, gpu=RTX_5070)
    assert found["option-never-existed"] == 13
    assert {
        "option-no-effect", "flag-mp-with-ninja", "flags-replaced", "unsupported-compiler-flag", "libtorch-only",
        "option-redundant", "option-default", "option-limited",
    } <= found.keys()  # fmt: skip
    said = " ".join(remark.found for remark in answer.remarks)
    for name in ("CMAKE_CUDA_ARCHITECTURES", "CMAKE_CXX_USE_RESPONSE_FILE_FOR_OBJECTS", "CAFFE2_USE_PTHREADPOOL"):
        assert name in said
    assert any("needless" in remark.found for remark in answer.remarks)


def test_a_release_makes_it_sharper() -> None:
    found = ids(FINAL, gpu=RTX_5070, torch="2.7.1")
    assert found["nvtx-gone"] == 5
    assert found["option-limited"] == 12
    assert ids(FINAL.replace("12.9", "12.8"), gpu=RTX_5070, torch="2.7.1").get("nvtx-gone") is None


def test_the_kepler_script() -> None:
    found = ids(KEPLER, gpu=K40, torch="1.12.1")
    assert found["studio-refused"] == 4, "CUDA 11.4 takes toolsets up to 14.29 only"
    assert found["requirement-twice"] == 3
    assert found["build-not-installed"] == 14
    assert found["delayed-expansion"] == 2
    assert found["cd-unquoted"] == 13
    assert found["rmdir-unchecked"] == 15
    assert found["pause"] == 16
    assert found["always-success"] == 17
    assert found["no-error-check"] == 3
    said = " ".join(remark.found for remark in reviewed(KEPLER, torch="1.12.1").remarks)
    for name in ("CUDA_TOOLKIT_ROOT_DIR", "CUDA_ROOT", "CMAKE_ARGS", "USE_CUPTI", "USE_AVX", "USE_MKL"):
        assert name in said
    assert "architecture-not-the-card" not in found


def test_visual_studio_2019_is_right_for_it() -> None:
    assert "studio-refused" not in ids(KEPLER.replace("\\2022\\", "\\2019\\"), torch="1.12.1")


@pytest.mark.parametrize(
    ("text", "name", "what", "fixed"),
    [
        ("pip install -r\"requirements.txt'\necho done\n", "a.bat", "quote-open", 'pip install -r"requirements.txt"'),
        ('cmake .. ^\n-DCMAKE_C_FLAGS="/arch:AVX ^\n-DX=1\n', "a.bat", "quote-open", '-DCMAKE_C_FLAGS="/arch:AVX" ^'),
        ('call "C:\\VS\\vcvars64.bat\necho done\n', "a.bat", "quote-open", 'call "C:\\VS\\vcvars64.bat"'),
        ('"C:\\VS\\vcvars64.bat"\necho done\n', "a.bat", "call-missing", 'call "C:\\VS\\vcvars64.bat"'),
        ("set USE_CUDA = 1\n", "a.bat", "set-with-spaces", 'set "USE_CUDA=1"'),
        ("export USE_CUDA=1\n", "a.bat", "wrong-shell", "set USE_CUDA=1"),
        ("# build it\n", "a.bat", "comment", "REM build it"),
        ("set USE_CUDA=1\n", "a.ps1", "wrong-shell", "$env:USE_CUDA = '1'"),
        ("set USE_CUDA=1\n", "a.sh", "wrong-shell", "export USE_CUDA=1"),
        ("USE_CUDA=1\npython setup.py bdist_wheel\n", "a.sh", "not-exported", "export USE_CUDA=1"),
        ("cd D:\\src\n", "a.bat", "cd-drive", "cd /d D:\\src"),
        ("call vcvars32.bat\n", "a.bat", "x86-prompt", "call vcvars64.bat"),
        ("set TORCH_CUDA_ARCH_LIST=89\n", "a.bat", "architecture-spelling", "set TORCH_CUDA_ARCH_LIST=8.9"),
        ("pip install ninja==1.13.0\n", "a.bat", "bad-pin", 'pip install "ninja>=1.13.2"'),
        ("git clone https://github.com/pytorch/pytorch\n", "a.sh", "clone-not-recursive",
         "git clone --recursive https://github.com/pytorch/pytorch"),
    ],
)  # fmt: skip
def test_the_corrected_line(text: str, name: str, what: str, fixed: str) -> None:
    assert corrected(text, what, name) == fixed


@pytest.mark.parametrize(
    ("text", "name", "what", "torch"),
    [
        ('cmake .. -DCMAKE_CXX_FLAGS="/arch:SSE4.1"\n', "a.bat", "switch-unknown", None),
        ("conda create -n b python=3.11\ngit checkout v1.13.1\n", "a.bat", "python-not-supported", None),
        ("conda create -n b python=3.10\n", "a.sh", "python-not-supported", "2.15.0"),
        ("pip install numpy==2.4.1\npy -3.10 setup.py\n", "a.bat", "bad-pin", None),
        (f'set "CUDA_PATH={TOOLKITS}\\v12.3"\nset TORCH_CUDA_ARCH_LIST=12.0+PTX\n', "a.bat",
         "toolkit-cannot-target", None),
        ("export TORCH_CUDA_ARCH_LIST=12.0\n", "a.sh", "one-digit-architecture", "2.0.1"),
        ("cmake .. -DPYTHON_EXECUTABLE=x -DUSE_CUDA=1\n", "a.sh", "option-renamed", "2.7.1"),
        ("cmake .. -DPython_EXECUTABLE=x -DUSE_CUDA=1\n", "a.sh", "option-renamed", "2.0.1"),
        ("python setup.py bdist_wheel\n", "a.sh", "setup-py-gone", "2.14.0"),
        ("python setup.py bdist_wheel\n", "a.sh", "architecture-not-said", None),
        ("export USE_CUDA=0 \nexport USE_CUDNN=1\n", "a.sh", "option-contradiction", None),
        ("cmake .. -DUSE_CUDDA=ON\n", "a.sh", "option-unknown", None),
        ("pip install cmake==4.2.1\n", "a.sh", "cmake-four", "1.13.1"),
        ("vcvars64.bat\n", "a.ps1", "environment-lost", None),
        ("call vcvars64.bat\npython setup.py bdist_wheel\n", "a.bat", "distutils-use-sdk", None),
        ("set CUDA_PATH=C:\\CUDA\\v12.4\nset PATH=C:\\CUDA\\v11.8\\bin;%PATH%\n", "a.bat", "two-toolkits", None),
        ("pip install wheel six numpy pyyaml build\n", "a.sh", "setuptools-free", "2.7.1"),
        ("cmake .. && ninja\n", "a.ps1", "chain", None),
        ("make\r\n", "a.sh", "line-ends", None),
        ('call vcvars64.bat -vcvars_ver=14.44\nset "CUDA_PATH=C:\\CUDA\\v11.8"\n', "a.bat", "toolset-refused", None),
    ],
)  # fmt: skip
def test_what_is_remarked(text: str, name: str, what: str, torch: str | None) -> None:
    assert what in ids(text, name, torch=torch)


def test_a_good_script_has_nothing_wrong() -> None:
    good = (
        "#!/bin/bash\nset -euo pipefail\nexport CUDA_HOME=/usr/local/cuda-12.8\nexport TORCH_CUDA_ARCH_LIST=12.0\n"
        "git clone --recursive --branch v2.7.1 https://github.com/pytorch/pytorch\ncd pytorch\n"
        "python setup.py bdist_wheel\n"
    )
    answer = reviewed(good, "build.sh", gpu=RTX_5070)
    assert [remark.id for remark in answer.remarks if remark.state is not State.PASS] == []


def test_a_good_batch_file_has_nothing_wrong() -> None:
    good = (
        "@echo off\n"
        'call "C:\\VS\\VC\\Auxiliary\\Build\\vcvars64.bat" -vcvars_ver=14.39 || exit /b 1\n'
        f'set "CUDA_PATH={TOOLKITS}\\v12.8"\nset "TORCH_CUDA_ARCH_LIST=12.0"\nset "DISTUTILS_USE_SDK=1"\n'
        'cd /d "C:\\src\\pytorch" || exit /b 1\ngit checkout v2.7.1 || exit /b 1\n'
        "python setup.py bdist_wheel\nif errorlevel 1 exit /b 1\n"
    )
    assert reviewed(good, gpu=RTX_5070).remarks == ()


def test_fix_writes_a_script_that_passes(tmp_path: Path) -> None:
    script, fixed = tmp_path / "build.bat", tmp_path / "fixed.bat"
    script.write_bytes(
        FIRST.replace("[venv_path]", "C:\\venv").replace("v12.3", "v12.9").replace("\n", "\r\n").encode()
    )
    seen = rekindle_command("review", str(script), "--gpu", "RTX 5070", "--fix", "-o", str(fixed))
    assert seen.code == 8
    text = fixed.read_bytes().decode()
    assert text.count("\r\n") == text.count("\n")
    assert 'TORCH_CUDA_ARCH_LIST="12.0"' in text
    assert "CMAKE_CUDA_ARCHITECTURES" not in text
    assert " \\\r\n" not in text
    again = rekindle_command("review", str(fixed), "--gpu", "RTX 5070", "--json")
    assert again.code == 0
    assert again.json()["scripts"][0]["refused"] is False


def test_when_the_last_line_goes_nothing_dangles() -> None:
    from rekindle.review.review import corrected as rewrite

    script = read(FINAL, name="a.bat")
    text = rewrite(script, review_script(script).remarks)
    assert not text.rstrip().endswith("^")
    assert "RESPONSE_FILE" not in text


def test_several_scripts_are_compared(tmp_path: Path) -> None:
    for name, text in (("one.bat", FIRST), ("two.bat", FINAL)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    seen = rekindle_command("review", str(tmp_path / "one.bat"), str(tmp_path / "two.bat"), "--gpu", "RTX 5070")
    assert seen.code == 8
    table = seen.out[seen.out.index("script  ") :]
    assert [line.split()[-1] for line in table.splitlines()[2:]] == ["refused", "accepted"]


def test_a_document_is_read_block_by_block() -> None:
    text = "# Notes\n\nI ran this:\n\n```batch\n" + FINAL + "```\n\nset USE_CUDA = 1 is prose\n"
    found = ids(text, "notes.md", gpu=RTX_5070)
    assert found["option-never-existed"] == 18
    assert "set-with-spaces" not in found


def test_two_open_quotes_do_not_close_each_other() -> None:
    text = 'cmake .. ^\n-DCMAKE_C_FLAGS="/arch:AVX ^\n-DCMAKE_CXX_FLAGS="/arch:AVX\n'
    found = [(remark.line, remark.corrected) for remark in reviewed(text).remarks if remark.id == "quote-open"]
    assert found == [(2, '-DCMAKE_C_FLAGS="/arch:AVX" ^'), (3, '-DCMAKE_CXX_FLAGS="/arch:AVX"')]


def test_notes_quote_more_than_scripts() -> None:
    text = (
        '```\nTraceback (most recent call last):\n  File "<string>", line 1, in <module>\n```\n'
        "```\ncmake==4.2.1\nninja==1.13.0\n```\n```bat\ncd C:\\Users\\<You>\\source\n```\n"
    )
    found = ids(text, "notes.md", torch="1.13.1")
    assert found["placeholder"] == 10
    assert found["bad-pin"] == 7
    assert found["cmake-four"] == 6


def test_mistakes_of_the_caller() -> None:
    assert rekindle_command("review", "no-such.bat").code == 14
    assert rekindle_command("review", "a.bat", "--fix").code == 2
    assert rekindle_command("review", "a.bat", "--torch", "two").code == 2


@pytest.mark.parametrize("name", ["build.cmd", "build.ps1"])
def test_a_script_that_rekindle_writes_has_nothing_wrong_with_it(tmp_path: Path, name: str) -> None:
    """It carries Python with it, takes another CUDA out of PATH, and quotes out of values."""
    machine = Path(__file__).parent.parent / "machines" / "k40c-ready-windows.json"
    plan = tmp_path / "plan.toml"
    text = 'torch = "1.12.1"\ncuda = "11.4"\ncudnn = "8.7.0"\narch_list = "3.5"\npython = "3.9"\ntoolset = "14.29"\n'
    plan.write_text(text, encoding="utf-8")
    words = ["build", str(plan), "--machine", str(machine), "--script", str(tmp_path / name)]
    assert rekindle_command(*words).code == 0
    answer = rekindle_command("review", str(tmp_path / name), "--json").json()["scripts"][0]
    assert answer["refused"] is False and answer["cuda"] == "11.4" and answer["architectures"] == ["sm_35"]
    # Others have built this pair for this card; PyTorch itself never did, and that is what remains to be said.
    assert {each["id"] for each in answer["remarks"] if each["state"] == "WARN"} <= {"toolkit-never-released"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.sh", "set -e\ncat >x <<'END'\nNAME = \"open\nEND\ncmake .\n"),
        ("a.ps1", "$text = @'\nset NAME=\"open\n'@\n"),
        ("a.cmd", 'cmake . || exit /b 1\nexit /b 1\nNAME = "open <name>\n'),
    ],
)
def test_a_text_that_a_script_carries_is_no_command(name: str, text: str) -> None:
    assert not [remark for remark in review_script(read(text, name=name)).remarks if remark.state is State.FAIL]
