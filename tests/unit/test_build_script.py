"""`rekindle build --script`: the plan as a script that stands alone."""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle.build import command as locked
from rekindle.build.command import BuildCommand
from rekindle.build.configure import render, request
from rekindle.build.script import standalone, standalone_folder, standalone_steps, write
from rekindle.build.script import text as script_text
from rekindle.core.errors import BadInput
from rekindle.core.version import Version
from rekindle.knowledge.torch.patches import PatchSetting
from rekindle.machine.model import Machine
from rekindle.machine.snapshot import load
from rekindle.source import patches
from support import trees
from support.artefacts import unverified
from support.command import Seen, rekindle_command

MACHINES = Path(__file__).parent.parent / "machines"
K40C = 'torch = "1.12.1"\ncuda = "11.4"\narch_list = "3.5"\npython = "3.9"\ntoolset = "14.29"\n'
PLAIN = 'source = "."\nname = "app"\nversion = "1.0"\nbackend = "cmake"\n'
STEPS = ["preflight", "source", "python", "patch", "environment", "smoke", "configure", "check", "compile", "libraries",
         "package", "tryout"]  # fmt: skip


def written(folder: Path, name: str, *words: str, plan: str = K40C, machine: str | None = "k40c-windows") -> str:
    (folder / "plan.toml").write_text(plan, encoding="utf-8")
    seen = command(folder, name, *words, machine=machine)
    assert seen.code == 0, seen.err
    return (folder / name).read_bytes().decode("ascii")


def command(folder: Path, name: str, *words: str, machine: str | None = "k40c-windows") -> Seen:
    replayed = ["--machine", str(MACHINES / f"{machine}.json")] if machine else []
    return rekindle_command("build", str(folder / "plan.toml"), *replayed, "--script", str(folder / name), *words)


@pytest.mark.parametrize("name", ["build.cmd", "build.ps1"])
def test_a_windows_script_is_written_on_any_system_from_a_recorded_machine(tmp_path: Path, name: str) -> None:
    text = written(tmp_path, name)
    assert text.count("\n") == text.count("\r\n"), "Windows line ends, all of them"
    assert r"C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA\v11.4" in text
    assert r"C:\Program Files (x86)\Microsoft Visual Studio\2019\Community" in text
    assert "-vcvars_ver=14.29.30133" in text
    places = [text.index(f"{step}: ") for step in STEPS if step != "preflight"]
    assert places == sorted(places), "the steps in the order of the build"
    assert "import rekindle" not in text and "from rekindle" not in text


def test_a_program_that_crashes_is_seen(tmp_path: Path) -> None:
    """It ends with a negative code (0xC0000005), for which `if errorlevel 1` is false."""
    text = written(tmp_path, "build.cmd")
    assert not re.search(r"(?im)^if errorlevel", text)
    assert "if not %ERRORLEVEL%==0 goto :failed" in text


def test_a_script_for_another_processor_is_written_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is built here, so the processor of this computer does not matter."""
    plan, script = tmp_path / "plan.toml", tmp_path / "build.sh"
    asked = ("--gpu", "6.1", "--os", "linux", "--arch", "x86_64", "--torch", "2.15", "-o", str(plan))
    assert rekindle_command("plan", *asked).code == 0
    monkeypatch.setattr("rekindle.core.paths.architecture", lambda: "aarch64")
    done = rekindle_command("build", str(plan), "--script", str(script))
    assert done.code == 0 and "Run it on that computer" in done.out and script.is_file()


def test_the_script_says_the_commands_that_the_build_itself_would_run(tmp_path: Path) -> None:
    text = written(tmp_path, "build.cmd", "--jobs", "3").replace("\r\n", "\n")
    assert r'run "%RK_WORK%\env\Scripts\python.exe" setup.py build --cmake-only' in text
    assert r'compile ninja -C "%RK_SOURCE%\build" -j "%RK_JOBS%" install' in text
    assert r'run "%RK_WORK%\env\Scripts\python.exe" setup.py bdist_wheel --dist-dir "%RK_WORK%\p"' in text
    assert 'set "RK_JOBS=3"' in text
    assert 'set "TORCH_CUDA_ARCH_LIST=3.5"' in text
    assert "origin 664058fa83f1d8eede5d66418abff6e20bd76ca8" in text
    # Read in PyTorch's own repository: the tag v1.12.1 is this commit.
    assert "664058fa83f1d8eede5d66418abff6e20bd76ca8" in text
    assert '"setuptools<74"' in text and '"cmake>=3.13,<4"' in text


def test_a_place_is_named_once_so_that_it_can_be_changed(tmp_path: Path) -> None:
    text = written(tmp_path, "build.cmd", "--work", "D:\\b")
    assert text.count("D:\\b") == 1
    assert text.count("\\CUDA\\v11.4") == 1


def test_nothing_in_a_batch_file_is_expanded_inside_parentheses(tmp_path: Path) -> None:
    """A `)` in a value would end the block: `C:\\Program Files (x86)`."""
    shell = written(tmp_path, "build.cmd").partition("rem " + script_text.PYTHON_BEGINS)[0]
    code = [line for line in shell.splitlines() if line and not line.startswith(("rem", "echo"))]
    outside = [re.sub(r'"[^"]*"', '""', line.replace('%PATH:"=%', "")) for line in code]
    assert not [line for line in outside if "(" in line or ")" in line]
    assert not [line for line in outside if re.search(r"[&|<>^!]", line)]
    assert not [line for line in code if line.count('"') % 2 and "PATH:" not in line]


def test_odd_characters_in_a_path_are_spelled_for_each_shell(tmp_path: Path) -> None:
    odd = r"C:\My Build (x86) & 100% ^ ! 'q'"
    batch = written(tmp_path, "build.cmd", "--work", odd, plan=PLAIN)
    assert r'''set "RK_WORK=C:\My Build (x86) & 100%% ^ ! 'q'"''' in batch
    powershell = written(tmp_path, "build.ps1", "--work", odd, plan=PLAIN)
    assert r'''$Env:RK_WORK = "C:\My Build (x86) & 100% ^ ! 'q'"''' in powershell


def test_letters_outside_ascii_are_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(K40C, encoding="utf-8")
    seen = command(tmp_path, "build.cmd", "--work", "C:\\Größe")
    assert seen.code == 4 and "RK_WORK" in seen.err and "--work C:\\rk" in seen.err
    assert not (tmp_path / "build.cmd").exists()


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        ("build.bash", (), "build.cmd"),
        ("build", (), "build.sh"),
        ("build.sh", (), "build.cmd"),
        ("build.cmd", ("--until", "check"), "the script itself"),
        ("build.cmd", ("--clean",), "--script"),
        ("build.cmd", ("--cache", "redis://host"), "--cache sccache"),
        ("build.cmd", ("--auto-fix",), "rekindle diagnose"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, name: str, words: tuple[str, ...], said: str) -> None:
    (tmp_path / "plan.toml").write_text(K40C, encoding="utf-8")
    seen = command(tmp_path, name, *words)
    assert seen.code == 2 and said in seen.err
    assert not (tmp_path / name).exists()


def test_a_script_compiles_through_the_cache_that_is_asked_for(tmp_path: Path) -> None:
    """PyTorch's own builds go through sccache; whether it is there the script itself looks."""
    assert "COMPILER_LAUNCHER" not in written(tmp_path, "build.cmd")
    text = written(tmp_path, "build.cmd", "--cache")
    assert all(f'set "CMAKE_{language}_COMPILER_LAUNCHER=sccache"' in text for language in ("C", "CXX", "CUDA"))
    assert '"what": "sccache"' in text


READY = load(MACHINES / "k40c-ready-windows.json")


@pytest.mark.parametrize(
    ("machine", "later"),
    [(READY, []), (Machine(os="windows", arch="x86_64"), ["CUDA 11.4", "Python 3.9", "MSVC toolset 14.29", "cuDNN "])],
    ids=["ready", "bare"],
)
def test_a_script_is_written_before_the_tools_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: Machine, later: list[str]
) -> None:
    """On the Windows machine itself: each missing tool is named, and stands in its usual place."""
    (tmp_path / "plan.toml").write_text(K40C + f'cudnn = "{READY.cudnns[0].version}"\n', encoding="utf-8")
    monkeypatch.setattr(write, "look", lambda snapshot: machine)
    made = write.write(BuildCommand(plan=tmp_path / "plan.toml", script=tmp_path / "build.cmd", work=Path("C:\\rk")))
    found = [each.found.partition(" is not on")[0] for each in made.findings if each.id == write.LATER]
    assert len(found) == len(later) and not made.elsewhere
    assert all(text.startswith(name) for text, name in zip(found, later, strict=True))
    assert ("later   CUDA 11.4 is not on this machine" in write.text(made)) == bool(later)
    text = (tmp_path / "build.cmd").read_bytes().decode("ascii")
    assert 'set "RK_CUDA=C:\\Program Files\\NVIDIA GPU Computing Toolkit\\CUDA\\v11.4"' in text
    assert text.count('\nset "RK_CUDNN=') == 1


def test_a_source_without_its_submodules_is_refused_with_the_command_that_fills_them(tmp_path: Path) -> None:
    """They were missed in configure, after everything had been installed."""
    source = tmp_path / "pytorch"
    (source / "third_party" / "fmt").mkdir(parents=True)
    (source / ".git").mkdir()
    listed = [f'[submodule "{name}"]\n  path = third_party/{name}\n' for name in ("fmt", "onnx")]
    # As a clone on Windows has it, wherever this runs.
    (source / ".gitmodules").write_bytes("".join(listed).replace("\n", "\r\n").encode())
    asked = request.BuildRequest(
        source=str(source), system="linux", arch="x86_64", python="python", torch="2.7.1",
        compiler=request.Compiler(kind="gcc", cxx="g++", c="gcc", cuda_host="g++"),
    )  # fmt: skip
    with pytest.raises(BadInput, match=r"`third_party/fmt` and 1 more is empty") as refused:
        locked.check_pins(asked, None)
    assert "submodule update --init --recursive" in str(refused.value.hint)
    (source / ".git").rmdir()
    with pytest.raises(BadInput) as refused:
        locked.check_pins(asked, None)
    assert "git" not in str(refused.value.hint) and "leave `--source` out" in str(refused.value.hint)
    for name in ("fmt", "onnx"):
        (source / "third_party" / name).mkdir(exist_ok=True)
        (source / "third_party" / name / "CMakeLists.txt").touch()
    assert locked.check_pins(asked, None) == ()


def test_a_dry_run_writes_nothing_and_the_answer_has_a_schema(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(K40C, encoding="utf-8")
    answer = command(tmp_path, "build.cmd", "--dry-run", "--json").json()
    assert answer["written"] is False and answer["kind"] == "cmd" and answer["steps"] == STEPS
    assert not (tmp_path / "build.cmd").exists()
    assert answer["version"] == "1.12.1+cu114.sm35"


def test_the_python_part_is_python_of_any_version_that_builds_a_torch(tmp_path: Path) -> None:
    text = written(tmp_path, "build.cmd").replace("\r\n", "\n").partition("rem " + script_text.PYTHON_BEGINS)[2]
    tree = ast.parse(text, feature_version=(3, 7))
    imported = {
        name.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names
    }
    imported |= {str(node.module).split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported <= sys.stdlib_module_names | {"torch"}


def test_an_option_that_does_nothing_is_said_and_passed_on(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(K40C, encoding="utf-8")
    seen = command(tmp_path, "build.cmd", "-D", "USE_CUPTI=0", "--allow-unknown")
    assert seen.code == 0 and "USE_CUPTI" in seen.err
    assert 'set "USE_CUPTI=0"' in (tmp_path / "build.cmd").read_text(encoding="ascii")


def test_an_untold_backend_on_another_computer_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text('source = "src"\nname = "app"\n', encoding="utf-8")
    seen = command(tmp_path, "build.cmd")
    assert seen.code == 4 and "backend" in seen.err


def test_a_source_that_is_not_absolute_is_meant_from_the_folder_of_the_script(tmp_path: Path) -> None:
    text = written(tmp_path, "build.cmd", plan=PLAIN.replace('"."', '"my src"'))
    assert 'set "RK_GIVEN=%RK_HERE%my src"' in text


def test_a_users_folder_that_the_recording_hides_is_the_readers_own(tmp_path: Path) -> None:
    plan = K40C.replace('"3.9"', "'C:\\Users\\<the üser>\\Python39\\python.exe'")
    text = written(tmp_path, "build.cmd", plan=plan)
    assert 'set "RK_PYTHON=%USERPROFILE%\\Python39\\python.exe"' in text
    assert r'$Env:RK_PYTHON = "${env:USERPROFILE}\Python39\python.exe"' in written(tmp_path, "build.ps1", plan=plan)
    (tmp_path / "plan.toml").write_text(plan.replace("Users", "<name>"), encoding="utf-8")
    seen = command(tmp_path, "build.cmd")
    assert seen.code == 4 and "RK_PYTHON" in seen.err and "build file" in seen.err


@given(
    st.text(st.characters(codec="ascii", exclude_categories=["Cc"], include_characters="\t", exclude_characters='"')),
    st.sampled_from(["", "/w/", "x=/w", "/w;", "/w:/w/a"]),
)
def test_a_value_is_put_together_again_as_it_was(value: str, before: str) -> None:
    """By the rules of each shell, as far as they can be followed here; tests/windows asks `cmd` itself."""
    known = (("/w", "RK_WORK"),)
    text = before + value
    assert "".join("/w" if named else part for named, part in render.split(text, known)) == text
    doubled = render.cmd_value(text, known).replace("%RK_WORK%", "/w") if "RK_WORK" not in text else None
    assert doubled is None or doubled.replace("%%", "%") == text
    words = shlex.split(render.sh_text(text, known)) or [""]
    filled = [word.replace("${RK_WORK}", "/w").replace("$RK_WORK", "/w") for word in words]
    assert "RK_WORK" in text or filled == [text]


# ---- other people's eyes


LINUX = 'torch = "1.13.1"\ncuda = "11.8"\narch_list = "3.5;5.0+PTX"\n'


@pytest.mark.parametrize("plan", [LINUX, PLAIN.replace('"."', '"my src"')])
def test_a_script_for_bash_is_bash_and_shellcheck_has_nothing_to_say(tmp_path: Path, plan: str) -> None:
    odd = "/srv/it's (odd) & more"
    written(tmp_path, "build.sh", "--work", odd, plan=plan, machine="debian-two-cudas")
    script = tmp_path / "build.sh"
    assert subprocess.run([needs_bash(), "-n", script], check=False).returncode == 0
    shellcheck = shutil.which("shellcheck")
    if shellcheck is None:
        unverified("shellcheck is not installed (Debian: apt-get install shellcheck)")
    said = subprocess.run([str(shellcheck), "--severity=style", script], capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout


# ---- what runs in bash


BASH = shutil.which("bash")


def needs_bash() -> str:
    if BASH is None or sys.platform == "win32":
        unverified("there is no bash here")
    return str(BASH)


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A `cmake` and a `ninja` that write down what they are called with and make what the steps look for."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for name in ("cmake", "ninja"):
        program = folder / name
        program.write_text(f"#!{sys.executable}\n{TOOL}", encoding="utf-8")
        program.chmod(0o755)
    return folder


TOOL = """
import os, pathlib, sys
words = sys.argv[1:]
with open(os.environ["CALLS"], "a") as log:
    log.write(pathlib.Path(sys.argv[0]).name + " " + repr(words) + "\\n")
if os.environ.get("BREAK") == pathlib.Path(sys.argv[0]).name:
    print("broken on purpose")
    sys.exit(7)
if "-B" in words:
    build = pathlib.Path(words[words.index("-B") + 1])
    build.mkdir(parents=True, exist_ok=True)
    (build / "CMakeCache.txt").write_text("CMAKE_GENERATOR:INTERNAL=Ninja\\n")
if "--install" in words:
    (pathlib.Path(words[words.index("--prefix") + 1]) / "app.txt").write_text("made")
"""


class Runner:
    """A script for a small CMake project, in a folder whose name would like to be run."""

    def __init__(self, folder: Path, tools: Path) -> None:
        self.bash = needs_bash()
        self.folder = folder / "a b $(touch ran) `touch ran` & ; ' (c)"
        self.folder.mkdir()
        self.calls = folder / "calls"
        self.work = self.folder / "w"
        # A Python with nothing beside it: tools in the folder of the build's Python come first.
        (tools / "python").symlink_to(sys.executable)
        self.plan = PLAIN + f'python = "{tools / "python"}"\n'
        written(self.folder, "build.sh", "--work", str(self.work), "--jobs", "2", plan=self.plan, machine=None)
        self.path = f"{tools}{os.pathsep}{os.environ['PATH']}"

    def __call__(self, *words: str, **extra: str) -> tuple[int, str]:
        env = {**os.environ, "PATH": self.path, "CALLS": str(self.calls), **extra}
        done = subprocess.run(
            [self.folder / "build.sh", *words], env=env, cwd=self.folder, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout + done.stderr

    def programs(self) -> list[str]:
        lines = self.calls.read_text(encoding="utf-8").splitlines() if self.calls.exists() else []
        self.calls.unlink(missing_ok=True)
        return [line.split()[0] for line in lines if "--version" not in line]


@pytest.fixture
def runner(tmp_path: Path, tools: Path) -> Runner:
    return Runner(tmp_path, tools)


@pytest.mark.long
def test_the_life_of_a_script_in_a_folder_with_any_name(runner: Runner) -> None:
    """One after the other, because each run starts many interpreters."""
    assert (runner.folder / "build.sh").stat().st_mode & stat.S_IXUSR
    # A step that fails stops it, with what to do.
    code, said = runner(BREAK="ninja")
    assert code == 1 and "FAILED in the step `compile`" in said and "broken on purpose" in said
    assert "ended with exit code 7" in said
    assert runner.programs() == ["cmake", "ninja"]
    # The same command goes on there.
    code, said = runner()
    assert code == 0 and "configure   kept" in said, said
    assert runner.programs() == ["ninja", "cmake"]
    assert next((runner.work / "wheels").iterdir()).name.startswith("app-1.0-py3-none-")
    assert re.search(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d package +done$", said, re.MULTILINE)
    log = (runner.work / "logs" / "build.log").read_text(encoding="utf-8")
    assert "broken on purpose" in log and "package     done" in log
    # What --from names is done again, with all after it, and no more than --until says.
    code, said = runner("--from", "check", "--until", "compile")
    assert code == 0 and "configure   kept" in said and "package" not in said
    assert runner.programs() == ["ninja"]
    # A script of a changed plan does again what has changed.
    words = ["--work", str(runner.work), "--jobs", "2", "-D", "A=1"]
    written(runner.folder, "build.sh", *words, plan=runner.plan, machine=None)
    assert runner()[0] == 0
    assert runner.programs() == ["cmake", "ninja", "cmake"]
    # And nothing in the folder's name was ever run.
    assert not list(runner.folder.rglob("ran")) and not (runner.folder.parent / "ran").exists()


@pytest.mark.parametrize(("words", "code"), [(("--from", "nothing"), 2), (("--what",), 2), (("--help",), 0)])
def test_arguments_are_checked(runner: Runner, words: tuple[str, ...], code: int) -> None:
    done, said = runner(*words)
    assert done == code and not runner.programs()
    assert "compile" in said or words == ("--what",)


def test_a_missing_tool_is_named_in_the_first_step(runner: Runner, tools: Path) -> None:
    (tools / "ninja").unlink()
    empty = tools / "system"
    empty.mkdir()
    for name in ("bash", "env", "dirname", "mkdir", "cat", "tr", "grep", "paste", "gcc", "g++"):
        if found := shutil.which(name):
            (empty / name).symlink_to(found)
    runner.path = f"{tools}{os.pathsep}{empty}"
    code, said = runner()
    assert code == 1 and "MISSING  ninja" in said and "pip install" in said
    assert runner.programs() == []


def test_a_script_never_ends_without_a_word(runner: Runner, tools: Path) -> None:
    """A shim of pyenv's fails quietly where PATH lacks what it calls; so may any program that is not a Python."""
    (tools / "python").unlink()
    (tools / "python").write_text("#!/bin/sh\nexit 2\n", encoding="utf-8")
    (tools / "python").chmod(0o755)
    code, said = runner()
    assert code == 3 and "exited with code 2 before the first step" in said and "RK_PYTHON" in said
    (tools / "python").unlink()
    code, said = runner()
    assert code == 3 and "There is no Python at" in said
    (tools / "python").symlink_to(sys.executable)
    shutil.rmtree(runner.work, ignore_errors=True)
    runner.work.write_text("a file where the folder should be", encoding="utf-8")
    code, said = runner()
    assert code == 4 and "Cannot write to" in said


@pytest.mark.long
@pytest.mark.parametrize("planted", ["w", "w/steps.py", "w/step.part", "w/logs", "w/logs/build.log", "w/done"])
def test_nothing_is_written_through_a_planted_link(runner: Runner, planted: str) -> None:
    """The usual folder lies in /var/tmp, where everybody can be first: a link there overwrote a file of the user's."""
    link = runner.folder / planted
    target = runner.folder.parent / "mine"
    if planted in ("w", "w/logs", "w/done"):
        target.mkdir()
        (target / "build.log").write_text("mine", encoding="utf-8")
    else:
        target.write_text("mine", encoding="utf-8")
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(target)
    code, said = runner()
    assert code == 4 and f"{link} is a link" in said and "RK_WORK" in said, said
    assert runner.programs() == []
    left = {path.name: path.read_text(encoding="utf-8") for path in target.iterdir()} if target.is_dir() else {}
    assert left == {"build.log": "mine"} if target.is_dir() else target.read_text(encoding="utf-8") == "mine"


def test_what_a_script_makes_is_for_the_user_alone(runner: Runner) -> None:
    assert runner("--until", "preflight")[0] == 0
    assert stat.S_IMODE(runner.work.stat().st_mode) == 0o700
    assert not list(runner.folder.glob("*.py")), "nothing beside it"
    # Nothing that lies where it is started is taken for a module of Python's.
    (runner.folder / "json.py").write_text("raise SystemExit('planted')", encoding="utf-8")
    assert runner("--until", "preflight")[0] == 0


# ---- the Python part by itself


def _folder(monkeypatch: pytest.MonkeyPatch, work: Path) -> int:
    monkeypatch.setenv("RK_WORK", str(work))
    return standalone_folder.own_folder()


@pytest.mark.parametrize("whose", ["w", ""])
def test_a_folder_of_somebody_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], whose: str
) -> None:
    """Also the one above it: its owner can put another in its place."""
    stranger = tmp_path / "rk" / whose
    work = tmp_path / "rk" / "w"
    work.mkdir(parents=True)
    real = standalone_folder.owner
    monkeypatch.setattr(standalone_folder, "owner", lambda path: "another" if path == stranger else real(path))
    assert _folder(monkeypatch, work) == standalone_folder.NOT_OURS
    assert f"{stranger} belongs to another user (another)" in capsys.readouterr().out
    assert list(work.iterdir()) == []


@pytest.mark.skipif(os.name == "nt", reason="UNVERIFIED: Windows has no modes; see tests/windows")
@pytest.mark.parametrize(
    ("mode", "place", "code"),
    [(0o777, "", 13), (0o1777, "", 0), (0o775, "", 0), (0o777, "w", 13), (0o1777, "w", 13), (0o755, "w", 0)],
)
def test_a_folder_that_everybody_may_write_into_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    mode: int,
    place: str,
    code: int,
) -> None:
    top = tmp_path / "rk"
    top.mkdir()
    if place:
        (top / place).mkdir()
    (top / place).chmod(mode)
    assert _folder(monkeypatch, top / "w") == code
    assert ("everybody may write into" in capsys.readouterr().out) is bool(code)
    assert (top / "w").is_dir() is (code == 0 or bool(place))


@pytest.mark.skipif(os.name == "nt", reason="UNVERIFIED: links on Windows need a privilege; Wine makes none")
def test_somebody_who_is_faster_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look and the making of it."""
    work = tmp_path / "rk" / "w"
    real = standalone_folder.make_folder

    def late(path: Path) -> None:
        path.parent.mkdir()
        path.symlink_to(tmp_path, target_is_directory=True)
        real(path)

    monkeypatch.setattr(standalone_folder, "make_folder", late)
    assert _folder(monkeypatch, work) == standalone_folder.NOT_OURS


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    monkeypatch.setenv("RK_WORK", str(tmp_path / "w"))
    made: dict[str, object] = {"steps": [], "patches": [], "expected": {}, "architectures": [], "cuda": ""}
    monkeypatch.setattr(standalone, "PLAN", made)
    monkeypatch.setattr(standalone_steps, "PLAN", made)
    return made


def test_the_patches_in_a_script_do_what_rekindle_patch_does(tmp_path: Path, plan: dict[str, object]) -> None:
    text = written(tmp_path, "build.cmd", plan=K40C.replace("1.12.1", "1.13.1").replace("11.4", "11.8"))
    python = text.replace("\r\n", "\n").partition("rem " + script_text.PYTHON_BEGINS)[2]
    assigned = next(node for node in ast.parse(python).body if isinstance(node, ast.AnnAssign))
    assert assigned.value is not None
    found = ast.literal_eval(assigned.value)["patches"]
    chosen = [patch for patch in found if patch["id"] == "distutils-vcenv"]
    assert chosen
    one, other = trees.pytorch(tmp_path / "one"), trees.pytorch(tmp_path / "other")
    for root in (one, other):
        file = root / "tools" / "build_pytorch_libs.py"
        file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    plan["patches"] = chosen
    assert standalone_steps.patch(str(one)) == 0
    patches.apply(other, PatchSetting(torch=Version("1.13.1"), os="windows"), only=["distutils-vcenv"])
    file = Path("tools", "build_pytorch_libs.py")
    assert (one / file).read_bytes() == (other / file).read_bytes() != b""
    assert b"get_vc_env" in (one / file).read_bytes()
    assert standalone_steps.patch(str(one)) == 0, "a second time it is done already"
    assert (one / file).read_bytes() == (other / file).read_bytes()


def test_the_modules_that_a_script_carries_have_no_name_twice(tmp_path: Path) -> None:
    """They become one file: a second `read` would take the place of the first."""
    text = written(tmp_path, "build.cmd", plan=K40C)
    body = ast.parse(text.replace("\r\n", "\n").partition("rem " + script_text.PYTHON_BEGINS)[2]).body
    names = [node.name for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    names += [target.id for node in body if isinstance(node, ast.Assign) for target in node.targets
              if isinstance(target, ast.Name)]  # fmt: skip
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize(("before", "after"), [("a b", "a"), ("a", "a b"), ("a", "c")])
def test_a_patch_is_told_from_its_text_also_when_one_holds_the_other(
    tmp_path: Path, plan: dict[str, object], before: str, after: str
) -> None:
    file = tmp_path / "f"
    file.write_text(f"[{before}]\n", encoding="utf-8")
    edit = {"file": "f", "count": 1, "fixed": "", "before": [before], "after": [after]}
    plan["patches"] = [{"id": "p", "edits": [edit]}]
    for _ in range(2):
        assert standalone_steps.patch(str(tmp_path)) == 0
        assert file.read_text(encoding="utf-8") == f"[{after}]\n"


def test_a_patch_that_does_not_fit_changes_nothing_at_all(tmp_path: Path, plan: dict[str, object]) -> None:
    (tmp_path / "a").write_text("one\n", encoding="utf-8")
    (tmp_path / "b").write_text("other\n", encoding="utf-8")
    edit = {"count": 1, "fixed": "", "before": ["one"], "after": ["two"]}
    plan["patches"] = [{"id": "p", "edits": [{"file": "a", **edit}, {"file": "b", **edit}]}]
    assert standalone_steps.patch(str(tmp_path)) == 1
    assert (tmp_path / "a").read_text(encoding="utf-8") == "one\n"


@pytest.mark.parametrize(
    ("cache", "ninja", "said"),
    [
        ("USE_CUDA:BOOL=ON", "-gencode arch=compute_35,code=sm_35", ""),
        ("USE_CUDA:BOOL=ON", "--generate-code=arch=compute_35,code=[sm_35]", ""),
        ("USE_CUDA:BOOL=OFF", "", "USE_CUDA=OFF"),
        ("USE_CUDA:BOOL=ON", "-O2", "CUDA is off"),
        ("USE_CUDA:BOOL=ON", "-gencode arch=compute_50,code=sm_50", "do not name sm_35"),
        ("", "", "no cache"),
    ],
)
def test_the_check_reads_what_cmake_decided(
    tmp_path: Path, plan: dict[str, object], capsys: pytest.CaptureFixture[str], cache: str, ninja: str, said: str
) -> None:
    plan.update(expected={"USE_CUDA": "ON"}, architectures=["sm_35"], cuda="11.4")
    (tmp_path / "CMakeCache.txt").write_text(cache + "\n", encoding="utf-8")
    (tmp_path / "build.ninja").write_text(
        f"build a.obj: CUDA_COMPILER__x_Release a.cu\n  FLAGS = {ninja}\n", encoding="utf-8"
    )
    assert standalone_steps.check(str(tmp_path)) == bool(said)
    assert said in capsys.readouterr().out


def test_a_shim_is_not_taken_for_the_interpreter(tmp_path: Path) -> None:
    """pyenv's `python` is a shell script: what a build is told is the interpreter behind it."""
    from rekindle.machine.host import Host
    from rekindle.machine.python import interpreters

    needs_bash()
    shim = tmp_path / "python"
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
    shim.chmod(0o755)
    assert interpreters.ask(Host(), str(shim)).path == sys.executable


def test_the_scripts_own_packing_gives_the_wheel_that_rekindle_gives(tmp_path: Path, plan: dict[str, object]) -> None:
    """One writer; the name of the program in WHEEL is all that differs."""
    import csv
    import zipfile

    from rekindle.build.script.standalone_steps import wheel_of_tree

    tree = tmp_path / "tree"
    (tree / "app" / "lib").mkdir(parents=True)
    (tree / "app" / "__init__.py").write_text("A = 1\n", encoding="utf-8")
    (tree / "app" / "lib" / "a, b.so").write_bytes(b"\x7fELF" * 100)
    (tree / "app" / "tool").write_text("#!/bin/sh\n", encoding="utf-8")
    (tree / "app" / "tool").chmod(0o755)
    plan.update(name="my-app", version="1.0")
    assert standalone_steps.pack(str(tree)) == 0
    ours = next((tmp_path / "w" / "wheels").glob("*.whl"))
    theirs = wheel_of_tree(tree, name="my-app", version="1.0", into=tmp_path, generator="rekindle")
    assert ours.name == theirs.name
    with zipfile.ZipFile(ours) as one, zipfile.ZipFile(theirs) as other:
        assert sorted(one.namelist()) == sorted(other.namelist())
        for name in one.namelist():
            if name.endswith(("/WHEEL", "/RECORD")):
                continue
            assert one.read(name) == other.read(name)
            assert one.getinfo(name).external_attr == other.getinfo(name).external_attr
        records = [
            sorted(row for row in csv.reader(archive.read("my_app-1.0.dist-info/RECORD").decode().splitlines())
                   if not row[0].endswith("/WHEEL"))
            for archive in (one, other)
        ]  # fmt: skip
    assert records[0] == records[1]


def test_the_scripts_own_check_agrees_with_rekindles(tmp_path: Path, plan: dict[str, object]) -> None:
    """What stops one stops the other, over the answers that CMake has been seen to give."""
    from rekindle.build.configure import backends, cmake_result, request
    from rekindle.build.configure.options import Options, Resolved
    from rekindle.core.findings import State, worst

    compiler = request.Compiler(kind="cl", cxx="cl", c="cl", cuda_host="cl")
    asked = request.BuildRequest(
        source=".", system="windows", arch="x86_64", python="python", compiler=compiler, arch_list="3.5",
        cuda=request.Cuda(root="c", nvcc="n", version=Version("11.4")),
    )  # fmt: skip
    chosen = Options(resolved=(Resolved(name="USE_CUDA", value="ON", origin="rule", via="environment"),))
    plan.update(expected={"USE_CUDA": "ON"}, architectures=["sm_35"], cuda="11.4")
    compiled = 'set(CMAKE_CUDA_COMPILER "c:/cuda/bin/nvcc.exe")\nset(CMAKE_CUDA_COMPILER_VERSION "{0}")\n'
    rule = "build a.obj: CUDA_COMPILER__x_Release a.cu\n  FLAGS = {0}\n"
    good = "-gencode arch=compute_35,code=sm_35"
    cases = [
        ("CMAKE_GENERATOR:INTERNAL=Ninja\nUSE_CUDA:BOOL=ON\n", good, "11.4.152"),
        ("CMAKE_GENERATOR:INTERNAL=Ninja\nUSE_CUDA:BOOL=OFF\n", good, "11.4.152"),
        ("CMAKE_GENERATOR:INTERNAL=Ninja\nUSE_CUDA:BOOL=ON\n", "-gencode arch=compute_50,code=sm_50", "11.4.152"),
        ("CMAKE_GENERATOR:INTERNAL=Ninja\nUSE_CUDA:BOOL=ON\n", good, "11.8.89"),
        ("", good, "11.4.152"),
    ]
    said = []
    for number, (cache, flags, version) in enumerate(cases):
        build = tmp_path / str(number)
        (build / "CMakeFiles" / "3.25").mkdir(parents=True)
        (build / "CMakeCache.txt").write_text(cache, encoding="utf-8")
        (build / "build.ninja").write_text(rule.format(flags), encoding="utf-8")
        (build / "CMakeFiles" / "3.25" / "CMakeCUDACompiler.cmake").write_text(
            compiled.format(version), encoding="utf-8"
        )
        script = standalone_steps.check(str(build)) == 0
        real = worst(backends.check_configured(asked, chosen, cmake_result.configured_in(build, ""))) is not State.FAIL
        said.append((script, real))
    assert said == [(True, True)] + [(False, False)] * 4
