"""`rekindle review` on whole scripts, and its command line. The commands are those people really wrote, typed anew."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rekindle.compat.companion import release_for
from rekindle.core.findings import Finding, State
from rekindle.core.version import Version
from rekindle.model.card import Capability
from rekindle.review.correct import corrected
from rekindle.review.document import load, read
from rekindle.review.question import Asked, question_from_options
from rekindle.review.remark import Remark
from rekindle.review.review import Reviewed, review_script
from support.command import rekindle_command

WHL = "https://download.pytorch.org/whl"
K40 = Capability.parse("3.5")
RTX_5070 = Capability.parse("12.0")
TOOLKITS = r"C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA"


def reviewed(
    text: str, name: str = "build.bat", *, gpu: Capability | None = None, torch: str | None = None
) -> Reviewed:
    return review_script(
        read(text, name=name), Asked(gpus=(gpu,) if gpu else (), torch=Version(torch) if torch else None)
    )


def ids(
    text: str, name: str = "build.bat", *, gpu: Capability | None = None, torch: str | None = None
) -> dict[str, int]:
    """What is remarked, and the first line where."""
    found: dict[str, int] = {}
    for remark in reviewed(text, name, gpu=gpu, torch=torch).remarks:
        found.setdefault(remark.id, remark.line)
    return found


def faults(answer: Reviewed) -> list[tuple[int, str]]:
    return [(remark.line, remark.id) for remark in answer.remarks if remark.state is not State.PASS]


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
GOOD_SHELL = """\
#!/bin/bash
set -euo pipefail
export CUDA_HOME=/usr/local/cuda-12.8
export TORCH_CUDA_ARCH_LIST=12.0
export MAX_JOBS=8
git clone --recursive --branch v2.7.1 https://github.com/pytorch/pytorch
cd pytorch
python setup.py bdist_wheel
"""
GOOD_BATCH = f"""\
@echo off
call "C:\\VS\\VC\\Auxiliary\\Build\\vcvars64.bat" -vcvars_ver=14.39 || exit /b 1
set "CUDA_PATH={TOOLKITS}\\v12.8"
set "TORCH_CUDA_ARCH_LIST=12.0"
set "MAX_JOBS=8"
set "DISTUTILS_USE_SDK=1"
cd /d "C:\\src\\pytorch" || exit /b 1
git checkout v2.7.1 || exit /b 1
git submodule update --init --recursive || exit /b 1
python setup.py bdist_wheel
if errorlevel 1 exit /b 1
exit /b 0
"""


def test_the_wrong_architecture_is_refused() -> None:
    answer = reviewed(FIRST, gpu=RTX_5070)
    assert answer.refused
    found = ids(FIRST, gpu=RTX_5070)
    assert found["architecture-not-the-card"] == 5
    assert found["toolkit-not-for-the-card"] == 4
    assert found["placeholder"] == 7
    signs = [remark for remark in answer.remarks if remark.id == "continuation"]
    assert [(sign.line, sign.corrected) for sign in signs] == [(1, "cmake .. -GNinja ^")], "told once for one command"


def test_without_a_gpu_the_architecture_is_nobodys_fault() -> None:
    assert "architecture-not-the-card" not in ids(FIRST)


def test_the_final_script_is_accepted_with_its_faults_named() -> None:
    answer = reviewed(FINAL, gpu=RTX_5070)
    assert not answer.refused
    found = ids(FINAL, gpu=RTX_5070)
    assert found["option-never-existed"] == 13
    assert {
        "option-no-effect", "flag-mp-with-ninja", "flags-replaced", "unsupported-compiler-needless", "libtorch-only",
        "option-redundant", "option-default", "option-limited-unknown",
    } <= found.keys()  # fmt: skip
    said = " ".join(remark.found for remark in answer.remarks)
    for name in ("CMAKE_CUDA_ARCHITECTURES", "CMAKE_CXX_USE_RESPONSE_FILE_FOR_OBJECTS", "CAFFE2_USE_PTHREADPOOL"):
        assert name in said


def test_a_release_makes_it_sharper() -> None:
    found = ids(FINAL, gpu=RTX_5070, torch="2.7.1")
    assert found["option-limited"] == 12
    assert "nvtx-gone" not in found, "2.5 and later bring nvtx3 with them"
    assert ids(FINAL, torch="2.4.1")["nvtx-gone"] == 5


def test_the_kepler_script() -> None:
    found = ids(KEPLER, gpu=K40, torch="1.12.1")
    assert found["studio-refused"] == 4, "CUDA 11.4 takes toolsets up to 14.29 only"
    assert found["requirement-twice"] == 3
    assert "numpy-two" not in found, "the second mention pins it"
    assert found["build-not-installed"] == 14
    assert found["delayed-expansion"] == 2
    assert found["cd-unquoted"] == 13
    assert found["rmdir-unchecked"] == 15
    assert found["pause"] == 16
    assert found["always-success"] == 17
    said = " ".join(remark.found for remark in reviewed(KEPLER, torch="1.12.1").remarks)
    for name in ("CUDA_TOOLKIT_ROOT_DIR", "CUDA_ROOT", "CMAKE_ARGS", "USE_CUPTI", "USE_AVX", "USE_MKL"):
        assert name in said
    assert "architecture-not-the-card" not in found


def test_visual_studio_2019_is_right_for_it() -> None:
    assert "studio-refused" not in ids(KEPLER.replace("\\2022\\", "\\2019\\"), torch="1.12.1")


@pytest.mark.parametrize(("name", "text"), [("build.sh", GOOD_SHELL), ("build.bat", GOOD_BATCH)])
def test_a_good_script_has_nothing_wrong(name: str, text: str) -> None:
    answer = reviewed(text, name, gpu=RTX_5070)
    assert faults(answer) == []
    assert answer.not_understood == ()
    assert (answer.torch, answer.cuda, answer.architectures) == ("2.7.1", "12.8", ("sm_120",))


def test_a_remark_is_a_finding() -> None:
    remark = next(each for each in reviewed(FIRST, gpu=RTX_5070).remarks if each.id == "architecture-not-the-card")
    assert isinstance(remark, Finding) and isinstance(remark, Remark)
    assert remark.fix is not None and remark.fix.mechanical
    assert remark.corrected == '-DTORCH_CUDA_ARCH_LIST="8.9;12.0" \\', "what the script serves besides stays"


def test_fix_shows_the_difference_and_writes_only_where_asked(tmp_path: Path) -> None:
    script, fixed = tmp_path / "build.bat", tmp_path / "fixed.bat"
    script.write_bytes(
        FIRST.replace("[venv_path]", "C:\\venv").replace("v12.3", "v12.9").replace("\n", "\r\n").encode()
    )
    before = script.read_bytes()
    seen = rekindle_command("review", str(script), "--gpu", "RTX 5070", "--fix")
    assert '+-DTORCH_CUDA_ARCH_LIST="8.9;12.0" ^' in seen.err and "nothing was written" in seen.err
    assert script.read_bytes() == before and not fixed.exists()
    seen = rekindle_command("review", str(script), "--gpu", "RTX 5070", "--fix", "-o", str(fixed))
    assert seen.code == 8
    text = fixed.read_bytes().decode()
    assert text.count("\r\n") == text.count("\n"), "the line ends stay as they were"
    assert 'TORCH_CUDA_ARCH_LIST="8.9;12.0"' in text
    assert "CMAKE_CUDA_ARCHITECTURES" not in text
    assert " \\\r\n" not in text
    again = rekindle_command("review", str(fixed), "--gpu", "RTX 5070", "--json")
    assert again.code == 0
    assert again.json()["scripts"][0]["refused"] is False


def test_fix_writes_nothing_that_brings_a_new_finding(tmp_path: Path) -> None:
    """12.0 is right for the GPU, and CUDA 12.4 cannot compile for it: a person has to decide."""
    script, fixed = tmp_path / "a.bat", tmp_path / "b.bat"
    script.write_text(FINAL.replace("v12.9", "v12.4").replace('"12.0"', '"8.9"'), encoding="utf-8")
    seen = rekindle_command("review", str(script), "--gpu", "RTX 5070", "--fix", "-o", str(fixed))
    text = fixed.read_text(encoding="utf-8")
    assert 'TORCH_CUDA_ARCH_LIST="8.9"' in text, "left for a person"
    assert "USE_CAFFE2" not in text and "-    " not in seen.err
    assert "not corrected, because it would bring another fault: line 6\n" in seen.err
    assert "line 6 would bring on line 5: CUDA 12.4 cannot compile for sm_120" in " ".join(seen.err.split())
    before = {
        remark["id"] for remark in rekindle_command("review", str(script), "--json").json()["scripts"][0]["remarks"]
    }
    after = {
        remark["id"] for remark in rekindle_command("review", str(fixed), "--json").json()["scripts"][0]["remarks"]
    }
    assert after <= before


def test_fix_counts_lines_as_the_file_does_where_others_are_removed(tmp_path: Path) -> None:
    """The report above counts so: a line that went before must not move the ones below."""
    script = tmp_path / "a.bat"
    lines = FINAL.replace("v12.9", "v12.4").replace('"12.0"', '"8.9"').splitlines()
    arch = next(line for line in lines if "ARCH_LIST" in line)
    gone = next(line for line in lines if "USE_CAFFE2" in line and "BUILD" not in line)
    lines.remove(arch)
    lines.insert(lines.index(gone) + 1, arch)
    script.write_text("\n".join(lines) + "\n", encoding="utf-8")
    result = corrected(script, question_from_options(("RTX 5070",)))
    assert f"-{gone}" in result.difference
    assert list(result.refused) == [lines.index(arch) + 1]
    assert result.refused[lines.index(arch) + 1].startswith("on line 5: CUDA 12.4 cannot compile")


def test_fix_keeps_every_architecture_and_writes_no_copy(tmp_path: Path) -> None:
    script, fixed = tmp_path / "a.sh", tmp_path / "b.sh"
    archs = "7.0 7.5 8.0 8.6 8.7 8.9 9.0 10.0"
    script.write_text(f'export TORCH_CUDA_ARCH_LIST="{archs}"\n', encoding="utf-8", newline="\n")
    rekindle_command("review", str(script), "--gpu", "RTX 5070", "--fix", "-o", str(fixed))
    assert fixed.read_text(encoding="utf-8") == f'export TORCH_CUDA_ARCH_LIST="{archs} 12.0"\n'
    fixed.unlink()
    script.write_text("pip install torch==2.8.0\n", encoding="utf-8", newline="\n")
    seen = rekindle_command("review", str(script), "--gpu", "RTX 5070", "--fix", "-o", str(fixed))
    assert "nothing was written" in seen.err and not fixed.exists()


def test_fix_leaves_alone_what_follows_from_an_inferred_release(tmp_path: Path) -> None:
    """A tag of another repository is not PyTorch's: nothing may be deleted because of it."""
    script = tmp_path / "build.bat"
    lines = "git clone --branch v2.4.0 https://github.com/example/tool\r\n" + "".join(
        f"set {name}=0\r\n" for name in ("BUILD_CAFFE2", "USE_AVX", "USE_FBGEMM", "USE_NINJA")
    )
    script.write_bytes((lines + "cd /d C:\\pytorch\r\npython setup.py bdist_wheel || exit /b 1\r\n").encode())
    seen = rekindle_command("review", str(script), "--fix", "--json")
    assert seen.json()["scripts"][0]["torch"] is None
    assert "nothing to correct" in seen.err


def test_when_the_last_line_goes_nothing_dangles(tmp_path: Path) -> None:
    (tmp_path / "a.bat").write_text(FINAL, encoding="utf-8")
    rekindle_command("review", str(tmp_path / "a.bat"), "--fix", "-o", str(tmp_path / "b.bat"))
    text = (tmp_path / "b.bat").read_text(encoding="utf-8")
    assert not text.rstrip().endswith("^")
    assert "RESPONSE_FILE" not in text


def test_several_scripts_are_compared(tmp_path: Path) -> None:
    for name, text in (("one.bat", FIRST), ("two.bat", GOOD_BATCH)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    seen = rekindle_command("review", str(tmp_path / "one.bat"), str(tmp_path / "two.bat"), "--gpu", "RTX 5070")
    assert seen.code == 8
    table = seen.out[seen.out.index("script  ") :]
    assert [line.split()[-1] for line in table.splitlines()[2:]] == ["refused", "accepted"]


def test_side_by_side_a_script_that_makes_no_wheel_is_wrong(tmp_path: Path) -> None:
    for name, text in (("bare.bat", FINAL), ("wheel.bat", GOOD_BATCH)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    answer = rekindle_command("review", str(tmp_path / "bare.bat"), str(tmp_path / "wheel.bat"), "--json").json()
    states = {remark["id"]: remark["state"] for remark in answer["scripts"][0]["remarks"]}
    assert states["no-wheel"] == "FAIL" and "libtorch-only" not in states
    assert "no-wheel" not in {remark["id"] for remark in answer["scripts"][1]["remarks"]}


def test_sarif_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "a.bat").write_text(FIRST, encoding="utf-8")
    seen = rekindle_command("review", str(tmp_path / "a.bat"), "--gpu", "RTX 5070", "--sarif")
    run = json.loads(seen.out)["runs"][0]
    found = {result["ruleId"]: result for result in run["results"]}
    place = found["architecture-not-the-card"]["locations"][0]["physicalLocation"]
    assert place["region"]["startLine"] == 5
    assert found["architecture-not-the-card"]["level"] == "error"


def test_secrets_are_never_printed(tmp_path: Path) -> None:
    text = "git clone https://me:s3cretpassword@github.com/pytorch/pytorch\nexport TORCH_CUDA_ARCH_LIST=89 # s3c\n"
    (tmp_path / "a.sh").write_text(text, encoding="utf-8")
    for words in ((), ("--json",), ("--sarif",), ("--fix",)):
        seen = rekindle_command("review", str(tmp_path / "a.sh"), *words)
        assert "s3cretpassword" not in seen.out + seen.err
    assert "secret" in ids(text, "a.sh")


def test_a_document_is_read_block_by_block() -> None:
    text = "# Notes\n\nI ran this:\n\n```batch\n" + FINAL + "```\n\nset USE_CUDA = 1 is prose\n"
    found = ids(text, "notes.md", gpu=RTX_5070)
    assert found["option-never-existed"] == 18
    assert "set-with-spaces" not in found


def test_notes_quote_more_than_scripts() -> None:
    text = (
        '```\nTraceback (most recent call last):\n  File "<string>", line 1, in <module>\n```\n'
        "```\nsix==1.17.0\ncmake==4.2.1\nninja==1.13.0\nwheel==0.45\n```\n```bat\ncd C:\\Users\\<You>\\source\n```\n"
    )
    found = ids(text, "notes.md", torch="1.13.1")
    assert found["placeholder"] == 12
    assert found["bad-pin"] == 8


def test_what_it_does_not_read_it_says(tmp_path: Path) -> None:
    (tmp_path / "conf.lua").write_text("x = 1\n", encoding="utf-8")
    (tmp_path / "conf.yml").write_text("a: 1\nb: [2, 3]\n", encoding="utf-8")
    for name in ("conf.lua", "conf.yml"):
        seen = rekindle_command("review", str(tmp_path / name))
        assert seen.code == 4 and "not a kind of script" in seen.err
    (tmp_path / "a.sh").write_text("if true; then\npip install torch\n", encoding="utf-8")
    seen = rekindle_command("review", str(tmp_path / "a.sh"))
    assert "Not understood" in seen.out and "not valid shell" in seen.out


def test_a_text_without_a_build_is_not_accepted(tmp_path: Path) -> None:
    nothing, good = tmp_path / "a.sh", tmp_path / "b.sh"
    nothing.write_text("set -e\necho hello\n", encoding="utf-8", newline="\n")
    good.write_text(GOOD_SHELL, encoding="utf-8", newline="\n")
    seen = rekindle_command("review", str(nothing))
    assert seen.code == 9 and "nothing was checked" in seen.out
    assert rekindle_command("review", str(nothing), "--json").json()["scripts"][0]["recognised"] is False
    for told in (("--torch", "2.7.1"), ("--python", "3.12")):  # said by who asks, not by the script
        assert rekindle_command("review", str(nothing), *told).code == 9
    assert rekindle_command("review", str(nothing), str(good)).code == 9
    assert rekindle_command("review", str(good)).code == 0
    nothing.write_text("if true; then\n", encoding="utf-8", newline="\n")
    assert rekindle_command("review", str(nothing)).code == 9, "what was not understood is not accepted either"


@pytest.mark.parametrize("line", ["rekindle build plan.toml --yes", "python -m rekindle extension build torchvision"])
def test_a_build_by_rekindle_is_a_build(tmp_path: Path, line: str) -> None:
    script = tmp_path / "Dockerfile"
    script.write_text(f"FROM python:3.11\nWORKDIR /src\nRUN {line}\n", encoding="utf-8")
    seen = rekindle_command("review", str(script))
    assert seen.code == 0 and "no fault found" in seen.out and "`rekindle build`" in seen.out
    script.write_text("FROM ubuntu:22.04\nRUN rekindle doctor\n", encoding="utf-8")
    assert rekindle_command("review", str(script)).code == 9


def test_mistakes_of_the_caller(tmp_path: Path) -> None:
    (tmp_path / "a.bat").write_text("echo\n", encoding="utf-8")
    assert rekindle_command("review", "no-such.bat").code == 14
    assert rekindle_command("review", str(tmp_path / "a.bat"), str(tmp_path / "a.bat"), "--fix").code == 2
    assert rekindle_command("review", str(tmp_path / "a.bat"), "-o", "x").code == 2
    assert rekindle_command("review", str(tmp_path / "a.bat"), "--torch", "two").code == 2


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
    assert [(each["id"], each["line"]) for each in answer["remarks"]] == [], "not even a note"
    assert answer["not_understood"] == []


def test_nor_has_one_for_bash(tmp_path: Path) -> None:
    machine = Path(__file__).parent.parent / "machines" / "debian-two-cudas.json"
    plan, script = tmp_path / "plan.toml", tmp_path / "build.sh"
    plan.write_text('torch = "1.13.1"\ncuda = "11.8"\narch_list = "3.5;5.0+PTX"\n', encoding="utf-8")
    words = ["build", str(plan), "--machine", str(machine), "--script", str(script), "--work", "/srv/it's (odd) & more"]
    assert rekindle_command(*words).code == 0
    answer = rekindle_command("review", str(script), "--json").json()["scripts"][0]
    assert [(each["id"], each["line"]) for each in answer["remarks"]] == [] and answer["not_understood"] == []


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


@pytest.mark.parametrize(
    ("name", "text", "card", "right"),
    [
        ("a.sh", "pip install torch==2.8.0\n", "GTX 1080 Ti", f"pip install torch==2.8.0 --index-url {WHL}/cu126\n"),
        (
            "a.sh",
            f"pip install torch==2.0.1+cu118 torchvision==0.15.2+cu118 -f {WHL}/torch_stable.html\n",
            "RTX 5090",
            f"pip install torch=={{torch}} torchvision=={{torchvision}} --index-url {WHL}/{{line}}\n",
        ),
        (
            "requirements.txt",
            "numpy\ntorch==2.8.0\ntorchvision==0.23.0\n",
            "GTX 1080 Ti",
            f"numpy\n--extra-index-url {WHL}/cu126\ntorch==2.8.0\ntorchvision==0.23.0\n",
        ),
        ("a.sh", "uv pip install torch==2.9.1 --torch-backend=cu128\n", "GTX 1080 Ti",
         "uv pip install torch==2.9.1 --torch-backend=cu126\n"),
        # Another package would not be found on PyTorch's index.
        ("a.sh", "pip install torch==2.8.0 einops\n", "GTX 1080 Ti",
         f"pip install torch==2.8.0 einops --extra-index-url {WHL}/cu126\n"),
        ("a.sh", "pip install torch torchvision\n", "GTX 1080 Ti",
         f"pip install torch=={{torch}} torchvision=={{torchvision}} --index-url {WHL}/{{line}}\n"),
        ("a.bat", "pip install torch torchvision\r\n", "RTX 3090",
         f"pip install torch torchvision --index-url {WHL}/cu130\r\n"),
        ("a.sh", "cd torch; pip install torch\n", "GTX 1080 Ti", None),
        # No companion of that line is known.
        ("a.sh", "pip install torch==2.0.1 torchtext==0.15.2\n", "RTX 5090", None),
    ],
)  # fmt: skip
def test_fix_writes_the_torch_that_plan_answers(
    tmp_path: Path, name: str, text: str, card: str, right: str | None
) -> None:
    script = tmp_path / name
    script.write_bytes(text.encode())
    result = corrected(script, question_from_options((card,)))
    best = rekindle_command("plan", "--gpu", card, "--os", "linux", "--arch", "x86_64", "--json").json()["recommended"]
    torch, line = best["torch"], best["variant"]
    fields = {"torch": torch, "line": line, "torchvision": release_for("torchvision", torch)}
    assert result.text == (right.format(**fields) if right else text)


def test_a_correction_shows_every_line_that_it_changes(tmp_path: Path) -> None:
    script = tmp_path / "requirements.txt"
    script.write_text("torch==2.0.1\ntorchvision==0.15.2\n", encoding="utf-8")
    shown = rekindle_command("review", str(script), "--gpu", "RTX 5090").out
    assert "+ line 2: torchvision==0." in shown


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", 'import pip\n\npip.main(["install", "flash-attn==2.5.8"])\n'),
        ("a.py", 'session.install("torch==2.0.1")\n'),
        ("pyproject.toml", '[project]\ndependencies = [\n    "torch==2.0.1",\n]\n'),
        # pip takes the last of two indexes
        ("a.sh", f"pip install torch==2.0.1+cu118 -f {WHL}/torch_stable.html -i https://mirror.example/simple\n"),
    ],
)
def test_no_word_is_added_where_it_would_mean_something_else(tmp_path: Path, name: str, text: str) -> None:
    script = tmp_path / name
    script.write_text(text, encoding="utf-8")
    answer = review_script(load(script), question_from_options(("RTX 5090",)))
    assert answer.refused and all(each.corrected is None for each in answer.remarks if each.state.value == "FAIL")


@pytest.mark.parametrize(("pin", "told"), [("scipy==1.10.1", False), ("scipy==1.14.1", True), ("tqdm==4.66.1", True)])
def test_a_pinned_package_may_keep_numpy_below_two(pin: str, told: bool) -> None:
    found = ids(f"torch==2.0.1\ntorchvision==0.15.2\n{pin}\n", "requirements.txt")
    assert ("numpy-two" in found) is told
