"""`rekindle diagnose` as a user meets it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rekindle.diagnose.answer import LogOutcome
from rekindle.diagnose.diagnosis import diagnose_text
from rekindle.diagnose.source import follow
from rekindle.diagnose.text import bare
from support.command import rekindle_command

KEPLER = """\
[1/3] Building CXX object a.cpp.o
[2/3] Building CUDA object k.cu.o
FAILED: k.cu.o
/usr/local/cuda/bin/nvcc -gencode arch=compute_35,code=sm_35 -c k.cu -o k.cu.o
nvcc fatal   : Unsupported gpu architecture 'compute_35'
ninja: build stopped: subcommand failed.
Traceback (most recent call last):
subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1.
RuntimeError: Error compiling objects for extension
ERROR: Failed building wheel for thing
"""


def test_the_cause_and_not_the_wrappers_around_it(tmp_path: Path) -> None:
    log = tmp_path / "build.log"
    log.write_text(KEPLER, encoding="utf-8")
    seen = rekindle_command("diagnose", str(log), "--json")
    answer = seen.json()
    assert seen.code == 8
    assert answer["outcome"] == "cause"
    assert [cause["label"] for cause in answer["causes"]] == ["cuda_arch_unsupported_by_nvcc"]
    first = answer["causes"][0]
    assert first["line"] == 5
    assert first["job"] == "k.cu.o"
    assert "rekindle gpu sm_35" in first["fix"]["commands"]
    assert 10 in {item["line"] for item in answer["wrappers"]}


@pytest.mark.parametrize(
    ("error", "label"),
    [
        ('/s/k.cu(1): error: identifier "undefined_thing" is undefined', "source_code_error"),
        ("/s/k.cu:1:10: fatal error: no_such.h: No such file or directory", "header_missing"),
    ],
)
def test_a_warning_about_the_driver_does_not_stop_a_compiler(error: str, label: str) -> None:
    """setup.py of every extension imports torch, which warns of an old driver, or none, on any machine without."""
    warned = (
        "  torch/cuda/__init__.py:180: UserWarning: CUDA initialization: The NVIDIA driver on your system is too old "
        "(found version 12020). Please update your GPU driver\n    return torch._C._cuda_getDeviceCount() > 0\n"
    )
    log = (
        f"{warned}  [1/1] nvcc -c k.cu\n  FAILED: [code=2] k.o\n  {error}\n  ninja: build stopped: subcommand failed.\n"
    )
    assert diagnose_text(log).causes[0].label == label
    ran = f"{warned}RuntimeError: The NVIDIA driver on your system is too old (found version 12020).\n"
    assert diagnose_text(ran).causes[0].label == "driver_too_old"


def test_the_fix_is_written_for_the_card_and_system_that_are_named(tmp_path: Path) -> None:
    log = tmp_path / "build.log"
    log.write_text(KEPLER, encoding="utf-8")
    answer = rekindle_command("diagnose", str(log), "--json", "--gpu", "RTX 3090", "--os", "windows").json()
    assert '$env:TORCH_CUDA_ARCH_LIST = "8.6"' in answer["causes"][0]["fix"]["commands"]


def test_the_fix_is_written_for_a_recorded_machine(tmp_path: Path) -> None:
    log = tmp_path / "build.log"
    log.write_text(KEPLER, encoding="utf-8")
    machine = Path(__file__).parents[1] / "machines" / "rtx5070-windows.json"
    answer = rekindle_command("diagnose", str(log), "--json", "--machine", str(machine)).json()
    assert answer["facts"]["os"] == "windows"
    assert '$env:TORCH_CUDA_ARCH_LIST = "12.0"' in answer["causes"][0]["fix"]["commands"]


def test_the_fix_names_the_toolset_that_this_cuda_takes() -> None:
    log = (
        "C:\\CUDA\\v12.1\\bin\\nvcc.exe -c k.cu\n"
        'yvals_core.h(902): error: static assertion failed with "error STL1002: Unexpected compiler version, '
        'expected CUDA 12.4 or newer."\n'
    )
    found = diagnose_text(log).causes[0]
    assert found.label == "msvc_stl_requires_newer_cuda"
    # CUDA 12.1 takes MSVC up to 19.39, and the STL of 14.40 and later refuses it: 14.39 is the newest of both.
    assert any(command.endswith('vcvars64.bat" -vcvars_ver=14.39') for command in found.whole.commands)
    assert "12.4 or newer" in found.whole.text


def test_a_person_reads_the_line_the_reason_and_the_fix(tmp_path: Path) -> None:
    log = tmp_path / "build.log"
    log.write_text(KEPLER, encoding="utf-8")
    seen = rekindle_command("diagnose", str(log))
    assert "line 5: nvcc fatal" in seen.out
    assert "rekindle gpu sm_35" in seen.out
    assert "Consequences of the cause above" not in seen.out
    assert "`--all` shows why" in seen.out
    # The heading is wrapped, too; what cannot be parted is the path of this test's own folder.
    assert max(len(line) for line in seen.out.splitlines() if log.name not in line) <= 80
    everything = rekindle_command("diagnose", str(log), "--all").out
    assert "Consequences of the cause above" in everything
    assert len(everything) > len(seen.out)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "cp1252", "gb18030"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_however_it_was_saved(encoding: str, end: str) -> None:
    found = diagnose_text(KEPLER.replace("\n", end).encode(encoding))
    assert (found.causes[0].label, found.causes[0].line) == ("cuda_arch_unsupported_by_nvcc", 5)


@pytest.mark.parametrize(
    "dress",
    [
        "2026-11-15T02:00:00.1234567Z {}",
        "[02:00:00] {}",
        "#12 34.56 {}",
        "> {}",
        "      {}",
        "build\tRun make\t2026-11-15T02:00:00.1234567Z {}",
        "\x1b[1m\x1b[31m{}\x1b[0m",
        "  1>{}",
        "| {}",
    ],
)
def test_whatever_stands_around_the_lines(dress: str) -> None:
    text = "\n".join(dress.format(line) for line in KEPLER.splitlines())
    found = diagnose_text(text)
    assert (found.causes[0].label, found.causes[0].line) == ("cuda_arch_unsupported_by_nvcc", 5)
    assert not any("\x1b" in item.text for cause in found.causes for item in cause.evidence)


def test_a_paste_that_the_console_cut_at_its_width() -> None:
    whole = (
        "Traceback (most recent call last):\n"
        '  File "C:\\Users\\me\\project\\main.py", line 12, in <module> x = torch.zeros(4).cuda() + torch.ones(4, 4)\n'
        "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
    )
    width = 50
    lines = [line[at : at + width] for line in whole.splitlines() for at in range(0, len(line), width)]
    assert not any("no kernel image is available" in line for line in lines)
    found = diagnose_text("\n".join(lines) + "\n")
    assert (found.causes[0].label, found.causes[0].line) == ("no_kernel_image", 5)


def test_nothing_failed_is_an_answer() -> None:
    found = diagnose_text(
        "-- Performing Test HAS_FLAG - Failed\n-- Looking for pthread_create - not found\n"
        "a.cpp:1:2: warning: unused variable\nSuccessfully installed thing-1.0\n"
    )
    assert found.outcome is LogOutcome.NONE
    assert found.causes == ()


def test_an_unknown_failure_is_said_to_be_unknown() -> None:
    found = diagnose_text(
        "[1/2] Building x\nFAILED: x\nfrobnicator: the gizmo is upside down\nninja: build stopped: x.\n"
    )
    assert found.outcome is LogOutcome.UNKNOWN
    assert found.unexplained


def test_a_folder_is_read_log_by_log(tmp_path: Path) -> None:
    (tmp_path / "one.log").write_text(KEPLER, encoding="utf-8")
    (tmp_path / "two.txt").write_text("Successfully built thing\n", encoding="utf-8")
    (tmp_path / "CMakeError.log").write_text(KEPLER, encoding="utf-8")
    answer = rekindle_command("diagnose", str(tmp_path), "--json").json()
    assert [log["outcome"] for log in answer["logs"]] == ["cause", "none"]


def test_a_log_that_is_being_written(tmp_path: Path) -> None:
    log = tmp_path / "build.log"
    lines = KEPLER.splitlines(keepends=True)
    log.write_text(lines[0], encoding="utf-8")
    waiting = lines[1:]
    now = [0.0]

    def pause(seconds: float) -> None:
        now[0] += seconds
        if waiting:
            with log.open("a", encoding="utf-8") as stream:
                stream.write(waiting.pop(0))

    answers = list(follow(log, idle=3.0, pause=pause, clock=lambda: now[0]))
    assert answers[-1].causes[0].line == 5
    first = next(answer for answer in answers if answer.causes)
    assert first.lines < answers[-1].lines, "it was told before the build had ended"
    seen = rekindle_command("diagnose", str(log), "--follow", "--idle", "0", "--json")
    assert seen.json()["causes"][0]["label"] == "cuda_arch_unsupported_by_nvcc"


def test_a_log_that_begins_anew_is_read_anew(tmp_path: Path) -> None:
    log = tmp_path / "build.log"
    log.write_text(KEPLER, encoding="utf-8")
    now = [0.0]

    def pause(seconds: float) -> None:
        now[0] += seconds
        log.write_text("Successfully installed thing\n", encoding="utf-8")

    answers = list(follow(log, idle=3.0, pause=pause, clock=lambda: now[0]))
    assert (answers[0].outcome, answers[-1].outcome) == (LogOutcome.CAUSE, LogOutcome.NONE)


def test_a_file_that_is_not_there() -> None:
    seen = rekindle_command("diagnose", "no-such-file.log")
    assert seen.code == 14
    assert "no such file" in seen.err


def test_what_a_log_says_never_becomes_part_of_a_command() -> None:
    found = diagnose_text("The detected CUDA version (1; rm -rf ~ && x) mismatches\nused to compile PyTorch (12.1)\n")
    assert not any("rm -rf" in command for cause in found.causes for command in cause.whole.commands)


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("a.c:1:10: 致命错误：Python.h：没有那个文件或目录\n编译中断。\n", "python_dev_files_missing"),
        (
            "a.c:1:10: schwerwiegender Fehler: Python.h: Datei oder Verzeichnis nicht gefunden\n",
            "python_dev_files_missing",
        ),
        ("a.cu:3:10: erreur fatale : THC/THC.h : Aucun fichier ou dossier de ce type\n", "torch_removed_header"),
        ("ld: a.o: 对‘foo’未定义的引用\n", "unresolved_external_symbol"),
        ("g++: 致命错误：已杀死 signal terminated program cc1plus\n", "compiler_out_of_memory"),
        ("OSError: [WinError 1114] 动态链接库(DLL)初始化例程失败。\n", "dll_init_failed"),
        ("LINK : fatal error LNK1104: tiedostoa 'ucrtd.lib' ei voi avata\n", "windows_sdk_missing"),
        (
            "k.cu: fatal error C1083: 无法打开包括文件: “cusparse.h”: No such file or directory\n",
            "cuda_dev_headers_missing",
        ),
        ("ImportError: DLL load failed: Операционная система не может запустить %1.\n", "dll_procedure_missing"),
    ],
)
def test_tools_speak_the_users_language(text: str, label: str) -> None:
    assert diagnose_text(text).causes[0].label == label


def test_a_status_line_of_cmake_stays_one_behind_a_time() -> None:
    """The log of a build that was configured without cuDNN, and lacked libcuda.so: cuDNN was blamed for it."""
    lines = [
        "-- Could NOT find CUDNN (missing: CUDNN_LIBRARY_PATH CUDNN_INCLUDE_PATH)",
        "-- Configuring done (28.3s)",
        "CMake Error: The following variables are used in this project, but they are set to NOTFOUND.",
        "Please set them or make sure they are set and tested correctly in the CMake files:",
        "CUDA_CUDA_LIB",
        '    linked by target "caffe2_nvrtc" in directory /b/s/caffe2',
        "",
        "CMake Generate step failed.  Build files cannot be regenerated correctly.",
    ]
    assert bare("2026-11-15T20:38:24.037Z -- Found") == "-- Found"
    assert bare("2026-11-15 20:38:24,037 - root - ERROR") == "root - ERROR"
    for before in ("", "2026-11-15T20:38:24.037Z "):
        found = diagnose_text("\n".join(before + line for line in lines))
        assert [cause.label for cause in found.causes][:1] == ["libcuda_not_found"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (r'venv "D:\forge\system\python\python.exe"', r"    D:\forge\system\python\python.exe -m pip install"),
        (r'venv "C:\sd\venv\Scripts\Python.exe"', r"    C:\sd\venv\Scripts\python.exe -m pip install"),
        (r'File "C:\Users\Ann\miniconda3\envs\x\lib\site-packages\a.py"', r'\miniconda3\envs\x\python.exe" -m pip'),
        ('File "/home/ann/.venv/lib/python3.11/site-packages/a.py"', '"$HOME/.venv/bin/python" -m pip install'),
        ('File "/usr/local/lib/python3.11/site-packages/a.py"', "    pip install"),
        ('File "/tmp/pip-build-env-x/overlay/lib/python3.11/site-packages/a.py"', "    pip install"),
        (r'File "C:\$(calc)\lib\site-packages\a.py"', "    pip install"),
        (r'File "\\server\share\env\lib\site-packages\a.py"', "`--all` shows why"),
    ],
)
def test_the_line_to_paste_is_for_the_python_of_the_log(line: str, said: str, tmp_path: Path) -> None:
    """A bare `pip` repairs whichever environment is active: with the README's, Rekindle's own."""
    log = tmp_path / "log.txt"
    log.write_text(f"{line}\nAssertionError: Torch not compiled with CUDA enabled\nRTX 3060\n", encoding="utf-8")
    seen = rekindle_command("diagnose", str(log))
    assert said in seen.out and "ann" not in seen.out.lower() and "server" not in seen.out
    assert '"environment": "C:\\\\Users' not in rekindle_command("diagnose", str(log), "--json").out


def test_the_c_library_of_the_system_chooses_the_torch(tmp_path: Path) -> None:
    """Named by `--os`, or read in the log: a torch that needs a newer one is not proposed."""
    log = tmp_path / "log.txt"
    said = "ImportError: /lib64/libm.so.6: version `GLIBC_2.27' not found (required by /e/torch/lib/libtorch_cpu.so)\n"
    for more, words in (("", ("--os", "CentOS 7")), ("Libc version: glibc-2.17\n", ("--os", "linux"))):
        log.write_text(more + said, encoding="utf-8")
        seen = rekindle_command("diagnose", str(log), "--gpu", "V100", "--driver", "450.80.02", *words)
        assert "torch==2.6.0+cu118" in seen.out
