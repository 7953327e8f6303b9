r"""The small places where Rekindle does something else on Windows: `tools/windows_branches.py` lists them.

Wine cannot vouch for: junctions (Wine's are links of the Linux below; the directory entry is stood in for); a real
Windows Terminal; a Visual Studio of Microsoft's.
"""

from __future__ import annotations

import io
import json
import os
import stat
import subprocess
import sys
import types
from pathlib import Path

import msgspec
import psutil
import pytest
import studio
from programs import program, stand_in

from rekindle.build.configure import tools
from rekindle.build.configure.environment import MARK
from rekindle.build.run import build
from rekindle.build.run.folders import without_spaces
from rekindle.cli.main import run
from rekindle.core import files, paths
from rekindle.core.console import colourful
from rekindle.core.processes import Started
from rekindle.core.run import call
from rekindle.core.version import Version
from rekindle.machine.system import surroundings, windows
from support import trees


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("variables", "colours"),
    [
        ({}, False),
        ({"WT_SESSION": "1"}, True),
        ({"TERM": "xterm"}, True),
        ({"WT_SESSION": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_colours_only_where_the_console_knows_them(variables: dict[str, str], colours: bool) -> None:
    assert colourful(Terminal(), variables) is colours


def test_the_build_takes_the_environment_of_the_plans_toolset(tmp_path: Path) -> None:
    place = studio.make(tmp_path / "VS (x86)", "14.16.27023", "14.29.30133")
    compiler = types.SimpleNamespace(studio=str(place), toolset=Version("14.16"))
    found = build.captured(types.SimpleNamespace(compiler=compiler), os.environ)  # type: ignore[arg-type]
    assert found is not None
    assert found.toolset == Version("14.16.27023")
    without = types.SimpleNamespace(compiler=types.SimpleNamespace(studio=None, toolset=None))
    assert build.captured(without, os.environ) is None  # type: ignore[arg-type]


def test_an_environments_python_is_below_scripts(tmp_path: Path) -> None:
    assert paths.venv_python(tmp_path) == tmp_path / "Scripts" / "python.exe"


def test_a_program_is_found_along_the_builds_own_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ninja = program("ninja")
    found = tools.which("ninja", {"Path": f"{tmp_path};{ninja.parent}"})
    assert found is not None
    assert Path(found).samefile(ninja)
    assert tools.which("ninja", {"PATH": str(tmp_path)}) is None
    # The current folder is where Windows looks first, and where a build must not.
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "ninja.exe").write_bytes(b"MZ")
    monkeypatch.chdir(tmp_path / "here")
    assert tools.which("ninja", {"PATH": str(tmp_path)}) is None


def test_a_process_that_carries_the_mark_is_ended_and_another_is_not(tmp_path: Path) -> None:
    sleeper = [sys.executable, "-c", "print('up', flush=True); import time; time.sleep(100)"]
    env = {**os.environ, MARK: str(tmp_path)}
    with subprocess.Popen(sleeper, env=env, stdout=subprocess.PIPE) as ours:
        assert ours.stdout is not None
        ours.stdout.readline()
        build._end(ours.pid, "another build", 0.3)
        assert psutil.pid_exists(ours.pid)
        build._end(ours.pid, str(tmp_path), 5.0)
        assert ours.wait(timeout=20) is not None


def test_without_a_temp_folder_windows_own_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.delenv(name, raising=False)
    assert surroundings._ask_places()["temp"] == r"C:\Windows\Temp"
    monkeypatch.undo()


def test_windows_is_what_is_meant_when_nothing_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = trees.pytorch(tmp_path / "pytorch")
    assert run(["patch", str(root), "--list", "--json"]) == 0
    states = {one["id"]: one["state"] for one in json.loads(capsys.readouterr().out)["patches"]}
    assert states["distutils-vcenv"] == "applies"
    run(["plan", "--gpu", "GTX 1080 Ti", "--json"])
    unsaid = capsys.readouterr().out
    run(["plan", "--gpu", "GTX 1080 Ti", "--os", "windows", "--json"])
    assert unsaid == capsys.readouterr().out


def test_a_root_with_a_space_is_refused_for_a_checkout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On Linux it would be taken: nvcc and PyTorch's scripts break on it here only."""
    code = run(["source", "--torch", "1.13.1", "-o", str(tmp_path / "my tree"), "--from", str(tmp_path)])
    assert code != 0
    assert "has a space in it" in capsys.readouterr().err


def test_a_read_only_file_is_patched_and_stays_read_only(tmp_path: Path) -> None:
    root = trees.pytorch(tmp_path / "pytorch")
    file = root / "aten/src/ATen/CMakeLists.txt"
    before = file.read_bytes()
    file.chmod(stat.S_IREAD)
    assert run(["patch", str(root), "--only", "cmake-minimum"]) == 0
    assert b"VERSION 3.5" in file.read_bytes()
    assert not file.stat().st_mode & stat.S_IWRITE
    assert run(["patch", str(root), "--undo"]) == 0
    assert file.read_bytes() == before
    file.chmod(stat.S_IWRITE)


@pytest.mark.parametrize(("tag", "link"), [(0xA0000003, True), (0, False)])
def test_a_junction_is_not_walked_into(tag: int, link: bool) -> None:
    found = types.SimpleNamespace(st_mode=stat.S_IFDIR, st_reparse_tag=tag)
    assert files.is_link(types.SimpleNamespace(lstat=lambda: found)) is link  # type: ignore[arg-type]


def test_a_token_semaphore_is_new_and_never_overfull() -> None:
    from rekindle.build.governor.endpoint import Semaphore

    name = f"rekindle-test-{os.getpid()}"
    first = Semaphore(name, 0, 1)
    with pytest.raises(OSError, match="183"):
        Semaphore(name, 0, 1)
    with pytest.raises(OSError):
        Semaphore("bad", 5, 1)
    first.give()
    with pytest.raises(OSError):
        first.give()
    assert first.take()
    first.close()


def test_a_program_that_cannot_be_put_into_its_job_does_not_run_on() -> None:
    from rekindle.core.job_object import Job, start_in

    job = Job()
    job.release()
    with pytest.raises(OSError):
        job._limit(0)
    before = {process.pid for process in psutil.process_iter()}
    with pytest.raises(OSError):
        start_in(job, subprocess.list2cmdline([sys.executable, "-c", "import time; time.sleep(100)"]), {})
    left = [process for process in psutil.process_iter() if process.pid not in before]
    psutil.wait_procs(left, timeout=10)
    assert not [process for process in left if process.is_running() and "time.sleep(100)" in process.cmdline()]


def test_ctrl_break_is_an_interruption_from_the_first_moment() -> None:
    import signal

    from rekindle.cli.main import main

    old = signal.getsignal(signal.SIGBREAK)
    try:
        with pytest.raises(SystemExit):
            main(["--version"])
        assert signal.getsignal(signal.SIGBREAK) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGBREAK, old)


def test_a_pipe_that_nobody_reads_any_more_ends_quietly() -> None:
    from rekindle.core.console import _write

    reader, writer = os.pipe()
    stream = os.fdopen(writer, "w", encoding="utf-8")
    os.close(reader)
    with pytest.raises(SystemExit) as ended:
        _write(stream, "x" * 100_000, answer=True)
    assert ended.value.code == 0
    stream.close()


class Cuda:
    """The driver's calls for one card in TCC mode."""

    def cuDeviceGet(self, device: object, index: int) -> int:
        return 0

    def cuDeviceGetName(self, name: object, size: int, device: object) -> int:
        name.value = b"Tesla K40c"  # type: ignore[attr-defined]
        return 0

    def cuDeviceGetAttribute(self, value: object, which: int, device: object) -> int:
        value._obj.value = {75: 3, 76: 5, 33: 2, 34: 0, 50: 0, 35: 1}[which]  # type: ignore[attr-defined]
        return 0


def test_a_card_in_tcc_mode_is_said_to_be() -> None:
    from rekindle.machine.gpu import ask_cuda_driver

    card = ask_cuda_driver.card(Cuda(), 0)
    assert (card["driver_model"], card["capability"], card["memory"]) == ("TCC", "3.5", None)


def test_a_file_is_read_in_hops(tmp_path: Path) -> None:
    from rekindle.formats.access import File

    (tmp_path / "f").write_bytes(b"0123456789")
    file = File(tmp_path / "f", hops=True)
    assert file.read(3, 4) == b"3456"
    file.close()


def test_the_ptxas_that_nvcc_calls_is_an_exe(tmp_path: Path) -> None:
    bin_folder = tmp_path / "CUDA (x64)" / "bin"
    answers = f"#$ _HERE_={bin_folder}\r\n#$ PATH={bin_folder};C:\\windows\r\n#$ ptxas -o x.cubin x.ptx\r\n"
    version = "Cuda compilation tools, release 11.4, V11.4.152\r\n"
    nvcc = stand_in(bin_folder / "nvcc.exe", ("--dryrun", answers, 0), ("--version", version, 0))
    stand_in(bin_folder / "ptxas.exe", ("--version", version, 0))
    request = types.SimpleNamespace(
        cuda=types.SimpleNamespace(nvcc=str(nvcc)), compiler=types.SimpleNamespace(kind="cl", cuda_host="cl.exe")
    )
    found = tools._ptxas(request, os.environ)  # type: ignore[arg-type]
    assert found is not None
    assert Path(found.path) == bin_folder / "ptxas.exe"
    assert found.version == Version("11.4.152")


def test_a_build_in_a_folder_with_a_space_goes_by_its_short_name(tmp_path: Path) -> None:
    """`C:\\Users\\Jane Doe`: nvcc takes the path apart at the space. Only what exists has a short name."""
    folder = tmp_path / "Jane Doe" / "work"
    folder.mkdir(parents=True)
    found = without_spaces(folder)
    assert " " not in str(found)
    assert found.samefile(folder)
    (found / "b").mkdir()
    assert (folder / "b").is_dir()
    later = without_spaces(folder / "not yet there")
    assert later.name == "not yet there"
    assert without_spaces(Path("C:/rk")) == Path("C:/rk")


def test_where_a_drive_has_no_short_names_the_folder_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "Jane Doe"
    monkeypatch.setattr(windows, "short_path", lambda _: None)
    assert without_spaces(folder) == folder


def test_the_memory_of_a_process_and_its_children_is_asked_of_windows() -> None:
    """In a process of its own: what a module does when it is imported counts too."""
    script = "import os; from rekindle.build.governor.endpoint import held_by; print(held_by(os.getpid()) or 0)"
    said = call([sys.executable, "-c", script], timeout=120)
    assert said.ok, said.err
    # Wine counts no memory, and answers 0; what is not asked for is None.
    assert said.out.strip().isdigit()
    from rekindle.build.governor.endpoint import held_by

    assert held_by(os.getpid()) is not None


def test_a_stand_alone_script_counts_the_characters_of_its_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    from rekindle.build.script import standalone_steps

    monkeypatch.setattr(standalone_steps, "PLAN", {"python": None, "nvcc": "x"}, raising=False)
    assert any("61 characters" in line for line in standalone_steps.unfit("C:\\" + "w" * 58))
    assert standalone_steps.unfit(r"C:\w") == []


def test_a_script_for_windows_is_to_be_run_here() -> None:
    from rekindle.build.script import write

    known = {"path": "build.cmd", "kind": "cmd", "title": "t", "steps": ("a",), "version": "1", "work": "w"}
    report = write.ScriptReport(**known, system="windows")  # type: ignore[arg-type]
    assert "Run it here" in write.text(report)
    assert "Run it on that computer" in write.text(msgspec.structs.replace(report, elsewhere=True))


def test_a_command_to_run_again_is_quoted_for_cmd() -> None:
    from rekindle.build import command

    assert command.again(["build", r"C:\my plan.toml", "--clean"]) == r'rekindle build "C:\my plan.toml"'


def test_a_plan_for_another_system_is_not_installed() -> None:
    from rekindle.core.errors import UsageError
    from rekindle.core.paths import architecture
    from rekindle.install import command

    plan = types.SimpleNamespace(system="linux", machine=architecture())
    with pytest.raises(UsageError, match="this is windows"):
        command._planned(plan, types.SimpleNamespace(version=None))  # type: ignore[arg-type]


def test_the_lines_of_a_program_come_one_by_one() -> None:
    words = [sys.executable, "-c", "print('one', flush=True); print('two')"]
    with Started(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as program_started:
        assert [line.strip() for line in program_started.lines()] == [b"one", b"two"]


def test_what_is_installed_is_for_windows() -> None:
    from rekindle.install import command

    here = types.SimpleNamespace(version="3.11", kind="venv")
    assert command._situation(here, ["sm_70"], None).system == "windows"  # type: ignore[arg-type]
