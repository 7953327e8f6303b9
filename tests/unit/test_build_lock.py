"""A plan is a lock: what it pins is enforced before anything is done, and there is one list of requirements."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from rekindle.build import command
from rekindle.build.configure import request
from rekindle.build.configure import tree as patches
from rekindle.build.configure.tools import Tool, Tools
from rekindle.build.run import own_python
from rekindle.cli.main import run
from rekindle.core.errors import BadInput, MissingTool, NotFound
from rekindle.core.findings import State
from rekindle.core.run import Result
from rekindle.core.version import Version
from rekindle.install import apply
from rekindle.install.bundle import bundle
from rekindle.machine.snapshot import load
from rekindle.stack import plan as lock
from rekindle.stack.resolver import resolve
from rekindle.stack.situation import Wish, situation_from_options
from support.artefacts import unverified

MACHINE = Path(__file__).resolve().parents[1] / "machines" / "k40c-ready-windows.json"


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    verdict = resolve(situation_from_options(["Tesla K40c"], system="windows", python="3.11"), Wish(torch="2.7.1"))
    lock.write(lock.plan_of(verdict), tmp_path / "plan.toml")
    return tmp_path / "plan.toml"


def here(wanted: request.BuildFile) -> request.BuildRequest:
    """On the recorded machine, with the toolchain it happens to have."""
    return request.resolve(
        msgspec.structs.replace(wanted, cuda=None, cudnn=None, toolset=None, python=None), load(MACHINE)
    )


def falsify(plan: Path, old: str, new: str) -> None:
    text = plan.read_text(encoding="utf-8")
    assert old in text
    plan.write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.mark.parametrize("words", [("--dry-run",), ("--script", "build.cmd")])
def test_a_falsified_patch_is_noticed(plan: Path, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    pinned = lock.read(plan).patches[0]
    falsify(plan, pinned.sha256, "0" * 64)
    assert run(["build", str(plan), "--machine", str(MACHINE), *words]) == BadInput.exit_code
    assert pinned.id in capsys.readouterr().err


def test_a_patch_that_does_not_exist_is_noticed(plan: Path) -> None:
    falsify(plan, lock.read(plan).patches[0].id, "no-such-patch")
    with pytest.raises(BadInput, match="no-such-patch"):
        request.read(plan)


def test_a_falsified_commit_is_noticed(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commit = lock.read(plan).commit
    assert commit
    falsify(plan, commit, "f" * 40)
    assert run(["build", str(plan), "--machine", str(MACHINE), "--dry-run"]) == BadInput.exit_code
    assert "ffffffffffff" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"pyyaml"', '"pyyaml==6.0.1"', "`requires`"),
        ('arch_list = "3.5"', 'arch_list = "3.5;8.6"', "`arch_list`"),
        ('arch_list = "3.5"', 'arch_list = "8.6"', "no code for its card Tesla K40c"),
        ('arch_list = "3.5"', 'arch_list = "new"', "another form - at `$.arch_list`"),
        ("[options]", '[options]\nUSE_FBGEMM = "1"', "`options`"),
        ("[seal]", "[notes]", "`seal`"),
    ],
)
def test_an_edit_of_what_is_locked_is_named(
    plan: Path, old: str, new: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """They passed a dry run without a word."""
    falsify(plan, old, new)
    assert run(["build", str(plan), "--machine", str(MACHINE), "--dry-run"]) == BadInput.exit_code
    assert said in capsys.readouterr().err


def test_what_was_edited_is_built_when_that_is_asked_for(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    falsify(plan, "[options]", '[options]\nUSE_FBGEMM = "1"')
    # It goes on, to the Python that this machine lacks.
    assert run(["build", str(plan), "--machine", str(MACHINE), "--dry-run", "--unlocked"]) == MissingTool.exit_code
    assert "edited after it was written: `options`; it is built as it is" in capsys.readouterr().err


def test_a_plan_without_cuda_needs_no_architectures(plan: Path) -> None:
    lock.write(msgspec.structs.replace(lock.read(plan), cuda=None, arch_list=None), plan)
    assert request.read(plan).arch_list == ""


def test_comments_and_order_are_free(plan: Path) -> None:
    falsify(plan, '"pyyaml",', '# mine\n    "pyyaml",')
    falsify(plan, '    "six",\n', "")
    falsify(plan, "requires = [\n", 'requires = [\n    "six",\n')
    assert "six" in request.read(plan).requires


def test_the_build_installs_the_plans_own_list(plan: Path) -> None:
    read = lock.read(plan)
    lock.write(msgspec.structs.replace(read, requires=(*read.requires, "pyyaml==6.0.1")), plan)
    wanted = request.read(plan)
    resolved = request.resolve(
        msgspec.structs.replace(wanted, cuda=None, cudnn=None, toolset=None, python=None), load(MACHINE)
    )
    assert "pyyaml==6.0.1" in resolved.requirements
    assert resolved.requirements == lock.read(plan).requires
    assert own_python.commands(resolved, Path("env"), None)[1][-len(resolved.requirements) :] == list(
        resolved.requirements
    )


def test_plan_bundle_build_and_script_have_one_list(
    plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def download(args: list[str], **_: object) -> Result:
        asked.append(args)
        Path(args[args.index("--dest") + 1], "ninja-1.13.2-py3-none-win_amd64.whl").write_bytes(b"wheel")
        return Result(args=tuple(args), code=0)

    monkeypatch.setattr("rekindle.core.run.call", download)
    verdict = resolve(situation_from_options(["Tesla K40c"], system="windows", python="3.11"), Wish(torch="2.7.1"))
    found = bundle(verdict, tmp_path / "b")
    requires = lock.read(plan).requires
    assert tuple(asked[0][-len(requires) :]) == requires
    unlocked = request.resolve(request.BuildFile(torch="2.7.1"), load(MACHINE))
    own = msgspec.structs.replace(unlocked, mkl=None)
    assert own.requirements == requires, "a build file without a plan installs the same"
    assert lock.read(tmp_path / "b" / "plan.toml").wheels[0].sha256 == hashlib.sha256(b"wheel").hexdigest()
    assert "--bundle" in found.commands[0]


def test_plan_and_build_name_the_same_patches(plan: Path) -> None:
    resolved = request.resolve(
        msgspec.structs.replace(request.read(plan), cuda=None, cudnn=None, toolset=None, python=None), load(MACHINE)
    )
    nothing = Tool(name="", path="")
    tools = Tools(cmake=nothing, ninja=nothing, python=nothing, cxx=nothing)
    setting = patches.patch_setting(resolved, tools)
    assert setting.compiler == "msvc"
    whole = msgspec.structs.replace(resolved, patches=None, python_version=Version("3.11"))
    asked = patches.wanted_patches(
        msgspec.structs.replace(whole, cuda=request.Cuda(root="c", nvcc="n", version=Version("11.8"))), tools
    )
    assert set(asked) == {pinned.id for pinned in lock.read(plan).patches}


def git(folder: Path, *words: str) -> str:
    own = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(folder), *words]
    return subprocess.run(own, check=True, capture_output=True, text=True).stdout.strip()


def test_a_source_at_another_commit_is_refused(tmp_path: Path) -> None:
    if shutil.which("git") is None:
        unverified("there is no git here")
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "version.txt").write_text("2.7.1\n", encoding="utf-8")
    machine = load(MACHINE)
    wanted = request.BuildFile(torch="2.7.1", source=str(tree), commit="e" * 40)
    resolved = request.resolve(wanted, machine)
    plain = command.check_pins(resolved, None)
    assert [finding.state for finding in plain] == [State.UNVERIFIED], "no git: said, not passed over"
    git(tree, "init", "-q")
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "-m", "one")
    with pytest.raises(BadInput, match="eeeeeeeeeeee"):
        command.check_pins(resolved, None)
    right = msgspec.structs.replace(resolved, commit=git(tree, "rev-parse", "HEAD"))
    assert [finding.state for finding in command.check_pins(right, None)] == [State.PASS]
    git(tree, "pack-refs", "--all")
    assert [finding.state for finding in command.check_pins(right, None)] == [State.PASS]
    (tree / "version.txt").write_bytes(b"2.7.1\r\n")
    assert [finding.state for finding in command.check_pins(right, None)] == [State.PASS], "line ends of Windows"
    (tree / "version.txt").write_text("2.7.1a\n", encoding="utf-8")
    with pytest.raises(BadInput, match=r"source was edited: `version\.txt`"):
        command.check_pins(right, None)


def test_a_dry_run_for_a_recorded_machine_looks_at_the_source(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, tree = tmp_path / "plan.toml", tmp_path / "tree"
    assert run(["plan", "--machine", str(MACHINE), "-o", str(plan)]) == 0
    (tree / ".git").mkdir(parents=True)
    (tree / ".git" / "HEAD").write_text("e" * 40 + "\n", encoding="ascii")
    words = ["build", str(plan), "--machine", str(MACHINE), "--dry-run"]
    assert run([*words, "--source", str(tree)]) == BadInput.exit_code
    assert "is at commit eeeeeeeeeeee, but the plan pins" in capsys.readouterr().err
    assert run(words) == 0


def test_a_bundle_is_whole_and_nothing_else(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="not a bundle"):
        own_python.check_bundle(tmp_path, {})
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    (wheels / "a.whl").write_bytes(b"a")
    pinned = {"a.whl": hashlib.sha256(b"a").hexdigest()}
    own_python.check_bundle(tmp_path, pinned)
    listed = [{"name": name, "sha256": sha, "size": 1} for name, sha in pinned.items()]
    (tmp_path / "bundle.json").write_text(json.dumps({"files": listed}), encoding="utf-8")
    own_python.check_bundle(tmp_path, {})
    (wheels / "b.whl").write_bytes(b"b")
    with pytest.raises(BadInput, match=r"b\.whl` is new"):
        own_python.check_bundle(tmp_path, pinned)
    (wheels / "b.whl").unlink()
    (wheels / "a.whl").write_bytes(b"other")
    with pytest.raises(BadInput, match=r"a\.whl` is not the file that was bundled"):
        own_python.check_bundle(tmp_path, pinned)
    (wheels / "a.whl").unlink()
    with pytest.raises(BadInput, match=r"a\.whl` is missing"):
        own_python.check_bundle(tmp_path, pinned)


def test_a_wheel_route_holds_its_wheels_hash() -> None:
    verdict = resolve(
        situation_from_options(["RTX 3090"], system="linux", python="3.11"), Wish(torch="1.13.1", configured_index=True)
    )
    made = lock.plan_of(verdict)
    assert made.route.value == "official-wheel"
    assert [wheel.name for wheel in made.wheels] == ["torch-1.13.1-cp311-cp311-manylinux1_x86_64.whl"]
    assert made.wheels[0].sha256.startswith("22128502fd8f5b25")


def test_another_file_of_that_name_is_not_installed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from rekindle.core.errors import FetchFailed, MissingTool

    class Shown:
        name = "pip"

    wheel = tmp_path / "torch-1.13.1-cp311-cp311-manylinux1_x86_64.whl"
    wheel.write_bytes(b"another")
    with pytest.raises(FetchFailed, match="not the file that the plan pins"):
        apply._pinned([wheel], {wheel.name: "0" * 64}, Shown())  # type: ignore[arg-type]
    with pytest.raises(FetchFailed, match=r"the file that the plan pins, `torch-1\.13\.1"):
        apply._pinned([wheel], {"torch-1.13.1-cp310-cp310-x.whl": "0" * 64}, Shown())  # type: ignore[arg-type]
    with pytest.raises(MissingTool, match="cannot be checked"):
        apply._pinned([], {wheel.name: "0" * 64}, Shown())  # type: ignore[arg-type]
    apply._pinned([wheel], {wheel.name: hashlib.sha256(b"another").hexdigest()}, Shown())  # type: ignore[arg-type]
    # Another build number of a companion is another file, and what is not pinned is named.
    pins = {"torchvision-0.22.1-cp311-cp311-x.whl": hashlib.sha256(b"v").hexdigest()}
    (other := tmp_path / "torchvision-0.22.1-1-cp311-cp311-x.whl").write_bytes(b"v")
    with pytest.raises(FetchFailed, match=r"`torchvision-0\.22\.1-cp311"):
        apply._pinned([other], pins, Shown())  # type: ignore[arg-type]
    apply._pinned([wheel], pins, Shown())  # type: ignore[arg-type]
    assert f"not pinned by the plan, taken as the index has them: {wheel.name}" in capsys.readouterr().err
