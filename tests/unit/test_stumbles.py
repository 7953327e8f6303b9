"""Where new users stumbled: the answers that sent them the wrong way, typed as they typed them."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
import zipfile
from pathlib import Path

import msgspec
import psutil
import pytest

import rekindle
from rekindle.build.command import wheel_in
from rekindle.core import codec
from rekindle.core.command import pip
from rekindle.core.errors import NotFound, UnknownName
from rekindle.core.redact import redact
from rekindle.install.installer import last_words, where_it_works
from rekindle.knowledge.gpu.gpu_code import GpuCode
from rekindle.web.serve import answer
from rekindle.wheels.shelf.store import ShelvedWheel, shelf_text
from support import torch_like
from support.artefacts import unverified
from support.command import Seen, rekindle_command
from support.fatbins import container
from support.shelves import pure_wheel

NO_KERNEL = (
    "NVIDIA {card} with CUDA capability {sm} is not compatible with the current PyTorch installation.\n"
    "pytorch version: {torch}\n"
    "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
)
CUDNN = (
    'Traceback (most recent call last):\n  File "{torch}", line 416, in <module>\n    from torch._C import *\n'
    "ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory\n"
)


def diagnosed(monkeypatch: pytest.MonkeyPatch, text: str, *words: str) -> dict[str, object]:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8"))
    seen = rekindle_command("diagnose", "-", "--json", *words)
    cause = json.loads(seen.out)["causes"][0]
    return {**cause["fix"], "more": cause["more"]}


@pytest.mark.parametrize(
    ("card", "sm", "torch", "command"),
    [
        ("GeForce RTX 5070", "sm_120", "2.6.0+cu124", "pip install torch==2.1"),
        ("GeForce GTX 1080 Ti", "sm_61", "2.15.0+cu130", "pip install torch==2.14.1+cu126"),
    ],
)
def test_a_wheel_of_another_release_comes_before_hours_of_compiling(
    monkeypatch: pytest.MonkeyPatch, card: str, sm: str, torch: str, command: str
) -> None:
    fix = diagnosed(monkeypatch, NO_KERNEL.format(card=card, sm=sm, torch=torch), "--os", "windows")
    commands = fix["commands"]
    assert isinstance(commands, list) and commands[0].startswith(command)
    assert f"--torch {torch.partition('+')[0]}`" in str(fix)


def test_a_portable_program_gets_the_line_for_its_own_python(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "C:\\ComfyUI_windows_portable>.\\python_embeded\\python.exe -s ComfyUI\\main.py\n"
    text += NO_KERNEL.format(card="GeForce RTX 5070", sm="sm_120", torch="2.6.0+cu124")
    commands = diagnosed(monkeypatch, text)["commands"]
    assert isinstance(commands, list)
    assert commands[0].startswith(".\\python_embeded\\python.exe -s -m pip install torch==")


def test_the_card_that_was_named_is_named_again(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
    fix = diagnosed(monkeypatch, text, "--gpu", "GTX 1080 Ti", "--os", "windows")
    assert "GeForce GTX 1080 Ti" in str(fix["text"])


def test_a_torch_without_its_cudnn_is_installed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    text = CUDNN.format(torch="/env/lib/python3.11/site-packages/torch/__init__.py")
    fix = diagnosed(monkeypatch, text, "--torch", "2.14.1+cu126", "--gpu", "GTX 1080 Ti")
    assert "nvidia-cudnn" not in str(fix["commands"])
    assert "torch anew" in str(fix["text"])


def test_another_program_gets_the_cudnn_of_the_cuda_that_torch_has(monkeypatch: pytest.MonkeyPatch) -> None:
    text = CUDNN.format(torch="/env/lib/python3.11/site-packages/onnxruntime/capi/_pybind_state.py")
    fix = diagnosed(monkeypatch, text.replace("torch._C", "onnx"), "--torch", "2.15.0+cu130")
    assert fix["commands"] == ['/env/bin/python -m pip install "nvidia-cudnn-cu13==9.*"']


@pytest.mark.parametrize("series", ["RTX", "GTX", "GeForce GTX", "quadro"])
def test_a_series_is_no_card(series: str) -> None:
    seen = rekindle_command("plan", "--gpu", series)
    assert seen.code == 3
    assert "is a series of cards" in seen.err


@pytest.mark.parametrize("name", ["linux", "debian", "gcc", "home"])
def test_an_ordinary_word_is_nobodys_name(name: str) -> None:
    assert redact(f'"os": "{name}"', names={name}) == f'"os": "{name}"'


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    folder = tmp_path / "nodes"
    (folder / "rack2").mkdir(parents=True)
    for name in ("node1", "rack2/node1"):
        assert rekindle_command("doctor", "--save", str(folder / f"{name}.json")).code in (0, 8, 9)
    return folder


def planned(*words: str) -> Seen:
    return rekindle_command("plan", "--gpu", "Tesla V100-PCIE-16GB", *words)


def test_a_broken_snapshot_does_not_hide_the_others(lab: Path) -> None:
    whole = (lab / "node1.json").read_bytes()
    (lab / "node2.json").write_bytes(whole[: len(whole) // 2])
    (lab / "node3.json").write_bytes(b"")
    seen = planned("--machine", str(lab), "--json")
    answer = json.loads(seen.out)
    assert [len(answer["nodes"]), len(answer["unreadable"]), seen.code] == [2, 2, 4]
    said = planned("--machine", str(lab)).out
    assert "Not read: 2" in said and "node2.json" in said and "node3.json" in said
    for name in ("node2", "node3"):
        (lab / f"{name}.json").write_text('{"gpu": "V100"}', encoding="utf-8")
    seen = planned("--machine", str(lab))
    assert (
        " ".join(seen.out.split()).count("it does not name its schema, `rekindle.machine/1`") == 1
        and "`None`" not in seen.out
    )
    assert "hint: `rekindle doctor --save machine.json` writes one" in seen.err


def test_an_empty_folder_is_not_this_computer(tmp_path: Path) -> None:
    seen = planned("--machine", str(tmp_path))
    assert seen.code != 0
    assert "no snapshot" in seen.err


def test_check_tells_a_gpu_that_is_served_from_one_that_is_not(tmp_path: Path) -> None:
    library = tmp_path / "ext.fatbin"
    library.write_bytes(container("sm_60", "sm_70"))
    codes = [
        rekindle_command("inspect", str(library), "--gpu", card, "--check").code for card in ("GTX 1080 Ti", "sm_120")
    ]
    assert codes == [0, 8]


def test_a_status_line_of_cudnn_does_not_win_over_the_error_below(monkeypatch: pytest.MonkeyPatch) -> None:
    """Configuring without OpenBLAS: cuDNN was switched off in the same command."""
    log = "-- Could NOT find CUDNN (missing: CUDNN_LIBRARY_PATH CUDNN_INCLUDE_PATH)\n-- USE_CUDNN is set to 0\n"
    log += "-- Trying to find preferred BLAS backend of choice: OpenBLAS\n"
    log += "CMake Error at cmake/Modules/FindOpenBLAS.cmake:57 (MESSAGE):\n  Could not find OpenBLAS\n"
    log += "Call Stack (most recent call first):\n  cmake/Dependencies.cmake:192 (find_package)\n\n"
    log += "-- Configuring incomplete, errors occurred!\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(log.encode()), encoding="utf-8"))
    answer = json.loads(rekindle_command("diagnose", "-", "--json").out)
    assert answer["causes"][0]["label"] == "cmake_package_missing"
    assert "OpenBLAS" in answer["causes"][0]["fix"]["text"]


def test_a_header_that_an_installed_torch_includes_is_no_submodule(monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian's torch leaves pybind11 to a package of its own."""
    log = "/usr/lib/python3/dist-packages/torch/include/torch/csrc/utils/pybind.h:10:10: fatal error: "
    log += "pybind11/pybind11.h: No such file or directory\ncompilation terminated.\nerror: command g++ failed\n"
    assert diagnosed(monkeypatch, log)["commands"] == ["sudo apt install pybind11-dev"]


def test_a_log_that_is_cut_short_is_not_called_done(monkeypatch: pytest.MonkeyPatch) -> None:
    log = "-- Performing Test HAS_A\n-- Performing Test HAS_A - Success\n-- Performing Test HAS_B\n"
    log += "[1/90] Building CXX object a.o\n[2/90] Building CXX object b.o\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(log.encode()), encoding="utf-8"))
    answer = json.loads(rekindle_command("diagnose", "-", "--json").out)
    assert answer["summary"].startswith("Nothing has failed so far")


def test_a_folder_that_does_not_exist_is_not_made_up(tmp_path: Path) -> None:
    """`-o /plans/plan.toml` made a folder at the root of the disk."""
    place = tmp_path / "plans" / "k40" / "plan.toml"
    seen = rekindle_command("plan", "--gpu", "Tesla K40c", "--os", "linux", "-o", str(place))
    assert (seen.code, place.parent.exists()) == (14, False)
    assert "there is no folder" in seen.err and "mkdir" in seen.err


@pytest.mark.skipif(sys.platform != "linux", reason="file names are bytes on Linux")
def test_a_file_name_that_is_no_utf8_is_answered(tmp_path: Path) -> None:
    log = tmp_path / os.fsdecode(b"b\xff.log")
    log.write_text("RuntimeError: CUDA error: no kernel image is available for execution on the device\n", "utf-8")
    seen = rekindle_command("diagnose", str(log), "--json")
    assert (seen.code, seen.json()["source"]) == (8, f"{tmp_path}/b\\xff.log")


def test_a_missing_wheel_is_missing(tmp_path: Path) -> None:
    seen = rekindle_command("shelf", "add", str(tmp_path / "nofile"))
    assert (seen.code, "no such file" in seen.err) == (14, True)


def test_a_bad_flag_names_the_help_of_its_subcommand() -> None:
    assert "see `rekindle toolchain install --help`" in rekindle_command("toolchain", "install", "--bogus").err


@pytest.mark.parametrize(
    "words",
    [("gpu", "Tesla K40c"), ("plan", "--gpu", "K40c", "--os", "windows"), ("plan", "--gpu", "K40c", "--list"),
     ("knowledge",)],
    ids=" ".join,
)  # fmt: skip
def test_forty_columns_are_forty(monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    """A table with many columns was as wide as ever."""
    monkeypatch.setenv("COLUMNS", "40")
    text = rekindle_command(*words).out
    # What is typed stays whole.
    prose = [line for line in text.splitlines() if not re.search(r" -|rekindle|://|`", line)]
    assert [line for line in prose if len(line) > 40] == []


def test_interrupted_while_it_starts_is_one_line(tmp_path: Path) -> None:
    code = (
        "import builtins, sys\nreal = builtins.__import__\n"
        "def slow(name, *rest):\n    if name == 'rekindle.cli.main': raise KeyboardInterrupt\n"
        "    return real(name, *rest)\n"
        "builtins.__import__ = slow\nfrom rekindle.__main__ import main\nmain()\n"
    )
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=False)
    assert (seen.returncode, seen.stderr) == (130, "\nerror: interrupted\n")


@pytest.mark.parametrize(
    "words",
    [
        ("factory", "init", ""),
        ("diagnose", ""),
        ("review", ""),
        ("inspect", ""),
        ("plan", "--machine", ""),
        ("install", ""),
    ],
)
def test_an_empty_path_is_not_the_current_folder(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`factory init "$NOT_SET"` wrote its files into the folder one stood in."""
    monkeypatch.chdir(tmp_path)
    seen = rekindle_command(*words)
    assert seen.code == 2
    assert "it is empty" in seen.err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_no_script(tmp_path: Path) -> None:
    seen = rekindle_command("review", str(tmp_path))
    assert seen.code == 14
    assert "is a folder, not a file" in seen.err


def test_no_torch_is_not_the_newest() -> None:
    seen = rekindle_command("plan", "--gpu", "GTX 1080", "--os", "linux", "--torch", "")
    assert (seen.code, seen.out) == (2, "")
    assert "no PyTorch was named" in seen.err


def test_the_library_refuses_a_word_it_does_not_know() -> None:
    """`gpu` instead of `gpus` was left out, and the answer was the one for this computer."""
    with pytest.raises(TypeError, match="`gpus`"):
        rekindle.plan(gpu="GTX 1080 Ti", os="linux")  # type: ignore[call-arg]


def test_a_name_in_wide_letters_is_the_same_name() -> None:
    wide = "GTX 1080".translate({**{code: code + 0xFEE0 for code in range(0x21, 0x7F)}, 0x20: 0x3000})
    assert "GeForce GTX 1080 (6.1)" in rekindle_command("plan", "--gpu", wide, "--os", "linux").out


def test_a_name_without_a_letter_of_ours_is_like_no_card() -> None:
    seen = rekindle_command("plan", "--gpu", "\u0432\u0438\u0434\u0435\u043e", "--os", "linux")
    assert seen.code == 3
    assert "no known name is like it" in seen.err


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy"])
def test_a_dead_proxy_is_named_and_its_password_is_not(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    """The words were those of a Python object."""
    monkeypatch.setenv(variable, "http://me:secret@127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "")
    seen = rekindle_command("inspect", "http://example.org/torch.whl")
    said = " ".join(seen.err.split())
    assert "the proxy 127.0.0.1:9 does not answer (the variable HTTP_PROXY" in said
    assert "secret" not in said and "Connection(" not in said


def test_nothing_there_is_said_in_words() -> None:
    seen = rekindle_command("plan", "--gpu", "K80", "--os", "linux", "--shelf", "http://127.0.0.1:9/")
    assert "refused" in seen.err and "Connection(" not in seen.err
    assert "check the address and the network" in seen.err


@pytest.mark.parametrize(
    ("left", "broken", "told"),
    [
        (0, "ProxyError('Cannot connect to proxy.')", "HTTPS_PROXY"),
        (0, "NewConnectionError('...: [Errno -2] Name or service not known')", "could not be looked up"),
        (0, "NewConnectionError('...: [Errno 111] Connection refused')", "could not be reached"),
        (3, "NewConnectionError('...: [Errno 104] Connection refused')", "No matching distribution"),
    ],
)
def test_pips_retries_are_not_its_reason(left: int, broken: str, told: str) -> None:
    """It calls a server that never answered "no matching distribution"; after a retry that helped it means it."""
    retry = f"WARNING: Retrying (Retry(total={left}, connect=None)) after connection broken by '{broken}'"
    said = last_words(f"{retry}\nERROR: No matching distribution found for torch==2.7.1\n")
    assert told in said and "Retry" not in said and len(said.splitlines()) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="on Windows itself the tools of the plan are looked for")
@pytest.mark.parametrize(
    ("name", "start"),
    [("build.ps1", "powershell -ExecutionPolicy Bypass -File build.ps1 --help"), ("build.cmd", r".\build.cmd --help")],
)
def test_a_script_is_started_as_windows_starts_it(
    name: str, start: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rekindle_command("plan", "--gpu", "Tesla K40c", "--os", "windows", "--torch", "2.7.1", "-o", "plan.toml")
    assert f"`{start}` says how" in " ".join(rekindle_command("build", "plan.toml", "--script", name).out.split())


@pytest.mark.parametrize("verb", [("serve",), ("shelf", "serve")])
def test_a_server_that_is_ended_as_it_says_did_not_fail(verb: tuple[str, ...], tmp_path: Path) -> None:
    """`press Ctrl+C to end` was followed by `error: interrupted`."""
    if os.name == "nt":
        unverified("Ctrl+C reaches a group of processes by another way there")
    rekindle_command("shelf", "add", str(pure_wheel(tmp_path)), "--shelf", str(tmp_path / "shelf"))
    words = [sys.executable, "-m", "rekindle", *verb, "--port", "0", "--shelf", str(tmp_path / "shelf")]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as run:
        assert run.stdout is not None
        said = next(line for line in run.stdout if "http://" in line)
        address = re.search(r"http://[\w.:/]+", said)
        assert address and urllib.request.urlopen(address[0], timeout=120).status == 200
        os.killpg(run.pid, signal.SIGINT)
        said += run.stdout.read()
    assert (run.returncode, "error" in said) == (0, False), said


@pytest.mark.skipif(os.name == "nt", reason="there is no SIGTERM there")
def test_a_command_that_is_ended_ends_what_it_started(tmp_path: Path) -> None:
    """`timeout` ended `install`, and pip went on in an environment that nobody put back."""
    pip = tmp_path / "pip.py"
    pip.write_text("import pathlib, time\npathlib.Path('begun').touch()\ntime.sleep(600)\n", encoding="utf-8")
    code = (
        "import sys\nfrom rekindle.cli import main\nfrom rekindle.core.run import call\n"
        f"main._carry_out = lambda argv: call([sys.executable, {str(pip)!r}], timeout=600)\n"
        "sys.argv = ['rekindle']\ntry:\n    main.main()\nexcept KeyboardInterrupt:\n    print('put back')\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as run:
        while not (tmp_path / "begun").exists():
            assert run.poll() is None
            time.sleep(0.05)
        (child,) = psutil.Process(run.pid).children()
        run.terminate()
        assert run.communicate(timeout=60)[0] == "put back\n"
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_an_amd_card_is_not_like_one_of_nvidias() -> None:
    """The picker offered `Quadro RTX 6000` to an RX 6800."""
    seen = answer("RX 6800", "linux", "", "")
    assert "AMD" in seen.refusal and seen.near == ()


def test_a_torch_without_one_of_its_files_is_not_mended_by_the_newest_torch(tmp_path: Path) -> None:
    """`pip install torch` was the fix of a wheel of torch: it brings one that has no code for the card."""
    code = (("sm_35",),)
    wheel = torch_like.wheel(tmp_path, libraries={"torch/lib/libtorch_cuda.so": code})
    said = " ".join(rekindle_command("inspect", str(wheel)).out.split())
    assert "this torch is not complete" in said
    assert "pip install torch" not in said


@pytest.mark.parametrize(
    ("cuda", "says"), [("99", "CUDA 99 is newer"), ("8", "CUDA 8 is older"), ("12.7", "there is no")]
)
def test_a_cuda_that_does_not_exist_is_not_the_cards_fault(cuda: str, says: str) -> None:
    with pytest.raises(UnknownName, match=says):
        rekindle.plan(gpus="Tesla K80", cuda=cuda, os="linux")


def test_a_named_system_brings_its_own_python() -> None:
    """`pip install` is typed on that system: with its own Python, or in an environment that is made first."""
    fitting = rekindle.plan(gpus="Tesla K80", driver="470", os="Ubuntu 22.04").recommended
    assert (fitting.python, len(fitting.commands)) == ("3.10", 1)
    older = rekindle.plan(gpus="RTX 3060", os="Ubuntu 20.04").recommended
    assert older.python == "3.12"
    assert "Ubuntu 20.04 comes with 3.8" in older.why[0]
    assert older.commands[0].startswith("uv venv")


COMFY = r"""pytorch version: 2.9.1+cu130
Device: cuda:0 NVIDIA GeForce RTX 5090 : cudaMallocAsync
!!! Exception during processing !!! CUDA error: no kernel image is available for execution on the device
CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.
Traceback (most recent call last):
  File "D:\ComfyUI_windows_portable\ComfyUI\execution.py", line 518, in execute
    output_data, output_ui, has_subgraph = get_output_data(obj, input_data_all)
  File "D:\ComfyUI_windows_portable\python_embeded\Lib\site-packages\sageattention\core.py", line 132, in sageattn
    return sageattn_qk_int8_pv_fp16_cuda(q, k, v)
RuntimeError: CUDA error: no kernel image is available for execution on the device
"""
KILLED = """$ pip install flash-attn --no-build-isolation
      building 'flash_attn_2_cuda' extension
      FAILED: /tmp/flash-attn_01/build/temp.linux-x86_64-cpython-311/flash_bwd_hdim128_bf16_causal_sm80.o
      Killed
      nvcc error   : 'cicc' died due to signal 9 (Kill signal)
  ERROR: Failed building wheel for flash-attn
"""
OTHER_TORCH = """Device: cuda:0 NVIDIA GeForce RTX 5090 : cudaMallocAsync
pytorch version: 2.8.0+cu128
  File "C:\\ComfyUI_windows_portable\\python_embeded\\Lib\\site-packages\\sageattention\\core.py", line 33, in <module>
    from . import _qattn_sm80
ImportError: DLL load failed while importing _qattn_sm80: The specified procedure could not be found.
"""
EMBEDDED = r"\ComfyUI_windows_portable\python_embeded"
CONSTRAINT = """ERROR: Cannot install torch==2.1.2 because these package versions have conflicting dependencies.
The conflict is caused by:
    The user requested torch==2.1.2
    The user requested (constraint) torch==2.15.0
ERROR: ResolutionImpossible: for help visit the documentation
"""


@pytest.mark.parametrize(
    ("text", "command"),
    [
        (COMFY, f"rekindle extension find sageattention --gpu sm_120 --env 'D:{EMBEDDED}'"),
        (
            COMFY.replace("python_embeded", "env").replace("_windows_portable", ""),
            r"rekindle extension find sageattention --gpu sm_120 --env 'D:\ComfyUI\env'",
        ),
        (
            COMFY.replace("D:\\ComfyUI_windows_portable\\python_embeded", "python_embeded").replace(
                "_windows_portable", ""
            ),
            r"rekindle extension find sageattention --gpu sm_120 --env '.\python_embeded'",
        ),
        (OTHER_TORCH, f"rekindle extension find sageattention --env 'C:{EMBEDDED}'"),
        (KILLED, "rekindle extension find flash-attn"),
        (CONSTRAINT, "rekindle install --undo"),
        (
            "The detected CUDA version (12.4) mismatches the version that was used to compile\nPyTorch (11.8).\n",
            "rekindle toolchain install cuda==11.8",
        ),
    ],
    ids=["portable", "extension", "no-folder", "other-torch", "memory", "own-pin", "toolkit"],
)
def test_the_line_that_goes_on(monkeypatch: pytest.MonkeyPatch, text: str, command: str) -> None:
    assert diagnosed(monkeypatch, text, "--shell", "sh")["commands"] == [command]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("build", "a.whl"), 4, "`a.whl` is a wheel or another zip archive"),
        (("plan", "--from", "a.whl"), 4, "`a.whl` is a wheel or another zip archive"),
        (("fleet", "plan", "a.whl"), 4, "`a.whl` is a wheel or another zip archive"),
        (("doctor", "--machine", "a.whl"), 4, "`a.whl` is a wheel or another zip archive"),
        (("diagnose", "a.whl"), 4, "not a log hint: `rekindle inspect a.whl`"),
        (("install", "a.whl", "--gpu", "K80"), 2, "`rekindle install --wheel a.whl`"),
        (("install", "a.txt", "--gpu", "K80"), 14, "`a.txt` is not a Python environment"),
        (("build",), 14, "write one first: `rekindle plan --gpu NAME -o plan.toml`"),
        (("inspect", "a.whl", "--require", "GTX 1080 Ti"), 2, "a card by name goes with `--gpu`"),
    ],
)
def test_another_file_than_expected_is_told_by_its_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], code: int, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile("a.whl", "w") as archive:
        archive.writestr("a.py", "")
    (tmp_path / "a.txt").write_text("x\n", encoding="utf-8")
    seen = rekindle_command(*words)
    assert (seen.code, says in " ".join(seen.err.split())) == (code, True), seen.err


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (("gpu", "K80", "--os", "windows"), None),
        (("gpu", "K80", "--jsn"), "--json"),
        (("doctor", "--only", "nosuch"), None),
        (("doctor", "--only", "memory.enogh"), "memory.enough"),
        (("planet",), "plan"),
    ],
)
def test_only_what_is_near_is_offered(words: tuple[str, ...], near: str | None) -> None:
    seen = rekindle_command(*words)
    said = " ".join(seen.err.split()).lower()
    assert seen.code in (2, 3) and (f"did you mean `{near}`?" in said if near else "did you mean" not in said)


def test_no_option_makes_up_the_folder_that_it_writes_into(tmp_path: Path) -> None:
    """`-o` refused a mistyped path, and `--save` made it at the root of the disk."""
    there = tmp_path / "nowhere"
    for words in (("doctor", "--save"), ("verify", "--junit"), ("verify", "--share"), ("build", "--script")):
        seen = rekindle_command(*words, str(there / "x"))
        assert (seen.code, f"there is no folder `{there}`" in " ".join(seen.err.split())) == (14, True), words
    assert not there.exists()


def test_an_option_of_the_program_behind_a_verb_is_told_its_place(tmp_path: Path) -> None:
    done = rekindle_command("gpu", "RTX 3090", "--knowledge", str(tmp_path))
    assert done.code == 2 and "goes before the verb: `rekindle --knowledge … gpu`" in done.err


def test_a_target_that_no_card_has_is_not_looked_for(tmp_path: Path) -> None:
    done = rekindle_command("inspect", str(tmp_path), "--require", "sm_999")
    assert done.code == 3 and "no GPU of compute capability 99.9" in done.err


def test_of_names_that_are_equally_near_the_first_are_offered() -> None:
    assert "`Tesla K40c` or `Tesla K40d`" in " ".join(rekindle_command("gpu", "Tesla K40x").err.split())


def test_a_new_shelf_whose_first_wheel_is_refused_is_not_made(tmp_path: Path) -> None:
    bad = tmp_path / "bad-1.0-py3-none-any.whl"
    bad.write_text("no zip", encoding="utf-8")
    assert rekindle_command("shelf", "add", str(bad), "--shelf", str(tmp_path / "s")).code == 4
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("words", [("fleet", "certs", "-o"), ("plan", "--gpu", "A100", "--bundle")])
def test_a_file_where_a_folder_was_to_be_is_no_fault_of_ours(tmp_path: Path, words: tuple[str, ...]) -> None:
    there = tmp_path / "there"
    there.write_text("mine\n", encoding="utf-8")
    seen = rekindle_command(*words, str(there))
    assert seen.code == 13
    assert f"cannot write `{there}" in seen.err.replace("\n", " ")
    assert there.read_text(encoding="utf-8") == "mine\n"


def test_a_wrong_certificate_setting_of_pip_is_named() -> None:
    """Behind a company's proxy `PIP_CERT` was right, and pip took REQUESTS_CA_BUNDLE; a lost file was the network's."""
    refused = "SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed'))"
    assert "REQUESTS_CA_BUNDLE" in last_words(f"WARNING: {refused}\n")
    lost = "ERROR: Could not install packages due to an OSError: Could not find a suitable TLS CA certificate bundle, "
    said = last_words(f"{lost}invalid path: /nope.pem\n")
    assert "a setting names a file of certificates that is not there: PIP_CERT" in said


def test_an_index_that_answered_is_not_said_to_be_out_of_reach() -> None:
    said = "ERROR: No matching distribution found for torch==2.15.0"
    assert where_it_works(said, [pip("install", "torch==2.15.0")]).startswith("where an index has it, run:")
    assert where_it_works("a server could not be reached from here", []).startswith("where that index can be reached")


def test_the_heading_of_a_diagnosis_fits_its_window(tmp_path: Path) -> None:
    (tmp_path / "a_rather_long_name_of_a_log.txt").write_text("ModuleNotFoundError: No module named 'torch'\n" * 2)
    seen = rekindle_command("diagnose", str(tmp_path / "a_rather_long_name_of_a_log.txt"))
    heading = seen.out.split("\n\n")[0].splitlines()
    assert len(heading) > 1 and max(len(line) for line in heading if "a_rather_long" not in line) <= 80


def test_a_base_that_is_not_there_leads_to_the_line_that_downloads_it(tmp_path: Path) -> None:
    """The README's `--graft base` ended with "check the path"."""
    with pytest.raises(NotFound) as refused:
        wheel_in(tmp_path / "base")
    assert "or compile less" in (refused.value.hint or "")


def test_cards_that_no_driver_drives_together_have_a_command_each() -> None:
    seen = rekindle_command("plan", "--gpu", "GTX 1060", "--gpu", "RTX 5070", "--os", "linux")
    said = " ".join(seen.out.split())
    assert '`rekindle plan --gpu "GeForce GTX 1060" --os linux`' in said
    assert '`rekindle plan --gpu "GeForce RTX 5070" --os linux`' in said


def test_a_shelved_wheel_with_gpu_code_is_not_said_to_have_no_cuda() -> None:
    """A wheel of a CMake project names no CUDA; its code was made by one."""
    plain = {"project": "x", "version": "1.0", "file": "x-1.0-py3-none-any.whl", "sha256": "a" * 64, "size": 1}
    entry = codec.from_builtins({**plain, "metadata_sha256": "a" * 64, "state": "PASS"}, ShelvedWheel)
    assert re.search(r"CUDA +none", shelf_text([entry]))
    code = (GpuCode(file="x.so", containers=1, targets={"sm_35": 1}),)
    assert re.search(r"CUDA +unknown", shelf_text([msgspec.structs.replace(entry, code=code)]))


def test_what_a_described_machine_does_not_say_is_not_missing(tmp_path: Path) -> None:
    """`no git on PATH` was said of a computer that nobody had looked into."""
    typed = {"os": "linux", "arch": "x86_64", "gpus": [{"name": "Tesla V100-SXM2-16GB"}], "driver": {"version": "535"}}
    checks = _checks_of(tmp_path / "node7.json", typed)
    for name in ("cuda.present", "tools.git", "tools.cmake", "tools.ninja", "intel.mkl"):
        assert checks[name]["state"] == "UNVERIFIED" and "does not say" in checks[name]["found"], name
    assert not any("toolkits:" in each["found"] for each in checks.values())
    checks = _checks_of(tmp_path / "node7.json", {**typed, "toolkits": [], "programs": []})
    assert checks["cuda.present"]["state"] == checks["tools.git"]["state"] == "WARN"


def _checks_of(file: Path, machine: dict[str, object]) -> dict[str, dict[str, str]]:
    file.write_text(json.dumps({"schema": "rekindle.machine/1", "machine": machine}))
    answer = rekindle_command("doctor", "--machine", str(file), "--json").json()
    return {each["id"]: each for each in answer["checks"]}


def test_the_plan_that_a_question_stands_on_can_be_asked_for() -> None:
    """`plan --with xformers` alone knew no card, and that it takes another Python was not said."""
    seen = rekindle_command("extension", "find", "xformers", "--gpu", "GTX 1060", "--os", "windows", "--python", "3.13")
    said = " ".join((seen.out + seen.err).split())
    assert '`rekindle plan --gpu "GTX 1060" --os windows --python 3.13 --with xformers`' in said
    assert "with Python 3.12 is what" in said


@pytest.mark.parametrize("group", ["extension", "factory", "fleet", "knowledge", "shelf", "toolchain"])
def test_the_list_of_a_group_is_not_cut_off(group: str) -> None:
    said = rekindle_command(group, "--help").out.partition("Commands:")[2]
    assert said and not re.search(r"\.\.\.$", said, re.MULTILINE) and max(len(line) for line in said.splitlines()) <= 80
