from __future__ import annotations

import json
import os
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from rekindle.core.errors import NotFound
from rekindle.core.findings import Finding, State
from rekindle.core.run import Result, call
from rekindle.formats import archive
from rekindle.machine.python.environment import find
from rekindle.model.card import Capability, NamedCard
from rekindle.wheels.verify import ask_torch, ask_torch_checks, trial, verify
from support import artefacts, small_wheels, torch_like
from support.command import Seen, rekindle_command

MARK = trial.MARK


def _read_only(wheel: Path, *more: str) -> Seen:
    return rekindle_command("verify", str(wheel), "--no-run", *more)


def _states(answer: dict[str, list[dict[str, str]]]) -> dict[str, str]:
    return {check["id"]: check["state"] for check in answer["checks"]}


def test_a_whole_wheel_without_a_card_is_unverified_never_passed(tmp_path: Path) -> None:
    wheel = small_wheels.make(tmp_path)
    seen = _read_only(wheel, "--json")
    assert seen.code == 9, seen.err
    answer = seen.json()
    states = _states(answer)
    assert [states[name] for name in ("file", "record", "tags", "closure")] == ["PASS"] * 4
    assert {states[name] for name in verify.RUNNING + verify.ON_CARD} == {"UNVERIFIED"}
    assert [check["number"] for check in answer["checks"]] == list(range(1, 28))
    assert answer["state"] == "UNVERIFIED"


def test_the_report_lies_beside_the_wheel_and_names_its_hash(tmp_path: Path) -> None:
    import hashlib

    wheel = small_wheels.make(tmp_path)
    answer = _read_only(wheel, "--json").json()
    report = json.loads((tmp_path / f"{wheel.name}.verify.json").read_text(encoding="utf-8"))
    assert report == answer
    assert report["sha256"] == hashlib.sha256(wheel.read_bytes()).hexdigest()


@pytest.mark.parametrize("verb", [("verify", "--no-run"), ("shelf", "add", "--no-label")], ids=" ".join)
def test_a_library_is_unpacked_once_for_all_that_is_asked(
    verb: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 800 MB that unpack to 1.6 GB, `verify` unpacked 3.2 and the shelf 4.7."""
    library = "torch/lib/libtorch_cuda.so"
    wheel = torch_like.wheel(tmp_path / "in", libraries={library: (("sm_61",),)})
    unpacked: list[str] = []
    real = archive.Archive._unpacked

    def counted(self: archive.Archive, member: archive.Member) -> Iterator[bytes]:
        unpacked.append(member.name)
        return real(self, member)

    monkeypatch.setattr(archive.Archive, "_unpacked", counted)
    rekindle_command(*verb, str(wheel), *(("--shelf", str(tmp_path / "shelf")) if verb[0] == "shelf" else ()))
    assert unpacked.count(library) == 1


def test_a_library_that_is_not_what_record_says_fails(tmp_path: Path) -> None:
    """Its hash is taken on the pass that reads its GPU code."""
    library = "torch/lib/libtorch_cuda.so"
    honest = {library: torch_like.elf("x86_64", ("sm_61",))}
    changed = {library: honest[library][:-1] + b"\1"}
    files = {**small_wheels.FILES, **changed}
    stated = small_wheels.record({**small_wheels.FILES, **honest})
    seen = _read_only(small_wheels.make(tmp_path, files, record_bytes=stated))
    assert seen.code == 8
    assert f"1 files do not match RECORD: `{library}`" in " ".join(seen.out.split())


def test_a_file_that_is_not_what_record_says_fails_though_its_size_is_right(tmp_path: Path) -> None:
    changed = {**small_wheels.FILES, "torch/__init__.py": b"import os \n" * 50}
    assert len(changed["torch/__init__.py"]) == len(small_wheels.FILES["torch/__init__.py"])
    wheel = small_wheels.make(tmp_path, changed, record_bytes=small_wheels.record(small_wheels.FILES))
    seen = _read_only(wheel)
    assert seen.code == 8
    assert "1 files do not match RECORD: `torch/__init__.py`" in " ".join(seen.out.split())


@pytest.mark.parametrize("digest", ["", "sha256="])
def test_a_file_without_a_hash_in_record_is_not_a_pass(tmp_path: Path, digest: str) -> None:
    rows = [f"{name},{digest},{len(data)}" for name, data in small_wheels.FILES.items()]
    stated = "\n".join([*rows, "demo-1.0.dist-info/RECORD,,", ""]).encode()
    answer = _read_only(small_wheels.make(tmp_path, record_bytes=stated), "--json").json()
    assert _states(answer)["record"] == "UNVERIFIED"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("demo-1.0-cp312-cp312-win_amd64.whl", "WHEEL says cp311-cp311-win_amd64"),
        ("demo-2.0-cp311-cp311-win_amd64.whl", "METADATA says demo 1.0"),
        ("other-1.0-cp311-cp311-win_amd64.whl", "METADATA says demo 1.0"),
        ("demo.whl", "not that of a wheel"),
    ],
)
def test_a_name_that_does_not_fit_fails(tmp_path: Path, name: str, said: str) -> None:
    seen = _read_only(small_wheels.make(tmp_path, name=name))
    assert seen.code == 8
    assert said in " ".join(seen.out.split())


def test_a_linux_that_the_file_name_calls_otherwise_is_no_failure(tmp_path: Path) -> None:
    """Official wheels are renamed to manylinux after they were built, and pip goes by the name alone."""
    files = {
        "demo/__init__.py": b"",
        "demo-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n",
        "demo-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: cp312-cp312-linux_x86_64\n",
    }
    wheel = small_wheels.make(tmp_path, files, name="demo-1.0-cp312-cp312-manylinux1_x86_64.whl")
    assert _states(_read_only(wheel, "--json").json())["tags"] == "WARN"
    other = small_wheels.make(tmp_path, files, name="demo-1.0-cp312-cp312-manylinux1_aarch64.whl")
    assert _states(_read_only(other, "--json").json())["tags"] == "FAIL"


def test_a_module_for_another_python_fails(tmp_path: Path) -> None:
    files = {"torch/_C.cp310-win_amd64.pyd": b"MZ", **small_wheels.FILES}
    answer = _read_only(small_wheels.make(tmp_path, files), "--json").json()
    assert _states(answer)["tags"] == "FAIL"


def test_a_cpu_build_fails_when_a_card_is_named(tmp_path: Path) -> None:
    answer = _read_only(small_wheels.make(tmp_path), "--gpu", "sm_90", "--json").json()
    assert _states(answer)["coverage"] == "FAIL"


def test_what_already_fails_on_reading_is_not_run(tmp_path: Path) -> None:
    """No environment is made: this takes no time, and nothing of the wheel is imported."""
    files = {**small_wheels.FILES, "torch/__init__.py": b"raise SystemExit('was imported')\n"}
    wheel = small_wheels.make(tmp_path, files, name="demo-1.0-cp312-cp312-win_amd64.whl")
    done = verify.verify(wheel, expected=verify.Expected())
    checks = {check.id: check for check in done.checks}
    assert done.state is State.FAIL
    assert checks["import"].found == "not run, because the check `tags` failed"


def test_a_wheel_for_another_system_is_unverified(tmp_path: Path) -> None:
    platform = "manylinux_2_17_x86_64" if sys.platform == "win32" else "win_amd64"
    tags = f"Wheel-Version: 1.0\nTag: cp311-cp311-{platform}\n".encode()
    files = {**small_wheels.FILES, "demo-1.0.dist-info/WHEEL": tags}
    wheel = small_wheels.make(tmp_path, files, name=f"demo-1.0-cp311-cp311-{platform}.whl")
    done = verify.verify(wheel)
    install = next(check for check in done.checks if check.id == "install")
    assert install.state is State.UNVERIFIED
    assert "cannot be run by this Python" in install.found


def test_junit_counts_what_could_not_be_checked_as_skipped(tmp_path: Path) -> None:
    wheel = small_wheels.make(tmp_path, name="demo-2.0-cp311-cp311-win_amd64.whl")
    _read_only(wheel, "--junit", str(tmp_path / "junit.xml"))
    suite = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert suite.attrib["tests"] == "27"
    assert suite.attrib["failures"] == "1" == str(len(suite.findall("testcase/failure")))
    assert len(suite.findall("testcase/skipped")) == int(suite.attrib["skipped"]) > 20


def test_the_check_during_which_the_process_died_is_the_one_that_failed() -> None:
    lines = [{"begin": "matmul-fp32"}, {"id": "matmul-fp32", "ok": True, "found": "good"}, {"begin": "cudnn"}]
    said = Result(args=("python",), code=-11, out="".join(MARK + json.dumps(line) + "\n" for line in lines), err="boom")
    answers = trial._answers(said, trial.lines_of(said.out), ("matmul-fp32", "cudnn", "fft"))
    assert [answer.finding.state for answer in answers] == [State.PASS, State.FAIL, State.UNVERIFIED]
    assert answers[1].finding.found == "the process exited with code -11 during this check: boom"


def test_a_missing_library_is_told_apart_from_the_file_that_is_named() -> None:
    found = 'OSError: [WinError 126] The specified module could not be found. Error loading "aoti_custom_ops.dll"'
    said = Result(args=("python",), code=0, out=MARK + json.dumps({"id": "import", "ok": False, "found": found}) + "\n")
    answer = trial._answers(said, trial.lines_of(said.out), ("import",))[0]
    assert answer.finding.state is State.FAIL
    assert answer.finding.fix is not None and "rekindle repair" in answer.finding.fix.text


def test_every_gpu_check_has_its_number_and_its_function() -> None:
    assert tuple(name for name, _ in ask_torch_checks.CHECKS) == verify.ON_CARD


def test_the_script_for_the_target_needs_nothing_of_rekindle() -> None:
    for script in (ask_torch, ask_torch_checks):
        text = Path(script.__file__).read_text(encoding="utf-8")
        assert "import rekindle" not in text and "from rekindle" not in text


def test_there_is_no_wheel_no_environment_no_torch(tmp_path: Path) -> None:
    for path in (tmp_path / "no.whl", tmp_path / "no", tmp_path):
        seen = rekindle_command("verify", str(path))
        assert seen.code == 14
        assert "hint:" in seen.err


def test_torch_is_asked_against_what_was_wanted(tmp_path: Path) -> None:
    from rekindle.wheels.verify import static_checks

    facts = {"version": "2.7.1+cu118", "cuda": "11.8", "python": "3.11.9"}

    def ask(torch: str | None, cuda: str | None) -> Finding:
        with static_checks.opened(small_wheels.make(tmp_path)) as subject:
            return static_checks.version_finding(subject, facts, torch, cuda)

    assert ask("2.7.1", "11.8").state is State.PASS
    assert ask("2.7.0", None).state is State.FAIL
    assert ask(None, "12.1").state is State.FAIL


def test_a_cut_wheel_is_an_error_not_a_crash(tmp_path: Path) -> None:
    wheel = small_wheels.make(tmp_path)
    wheel.write_bytes(wheel.read_bytes()[:-40])
    assert _read_only(wheel).code == 4
    with zipfile.ZipFile(wheel, "w") as empty:
        empty.writestr("x", b"")
    assert _read_only(wheel).code in (8, 9)


def test_who_stands_in_the_source_tree_gets_the_installed_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text("raise SystemExit('the wrong torch')\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    try:
        found = trial.find(Path(sys.executable)).torch
    except NotFound:
        return
    assert tmp_path not in found.parents


def test_a_plan_says_what_it_should_be(tmp_path: Path) -> None:
    words = ("plan", "--gpu", "Tesla V100", "--os", "linux", "--driver", "580.65.06", "--python", "3.11")
    assert rekindle_command(*words, "-o", str(tmp_path / "plan.toml")).code == 0
    expected = verify.expected_of(tmp_path / "plan.toml")
    assert expected.cards == ("sm_70",)
    assert expected.torch and expected.cuda
    seen = _read_only(small_wheels.make(tmp_path), "--plan", str(tmp_path / "plan.toml"), "--json")
    assert _states(seen.json())["coverage"] == "FAIL"


@pytest.mark.parametrize(("body", "state", "said"), [("x = 1", "PASS", "glow"), ("import nowhere", "FAIL", "nowhere")])
def test_a_wheel_that_is_not_torch_is_imported_for_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, state: str, said: str
) -> None:
    """An extension or a small project of one's own: there is no torch in it to ask."""
    files = {
        "glow/__init__.py": body.encode(),
        "spark.py": b"",
        "glow/data/__init__.py": b"",
        "glow-1.0.data/scripts/run": b"",
        "glow-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: glow\nVersion: 1.0\n",
        "glow-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    wheel = small_wheels.make(tmp_path, files, name="glow-1.0-py3-none-any.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as zipped:
        zipped.extractall(site)

    def installed(*_: object) -> trial.TrialRun:
        made = Finding(id="install", state=State.PASS, found="installed")
        return trial.TrialRun(python=Path(sys.executable), finding=made)

    monkeypatch.setattr(trial, "_installed", installed)
    monkeypatch.setattr(trial, "clean_environment", lambda: {**os.environ, "PYTHONPATH": str(site)})
    # A card in the machine is no reason to ask for GPU code where nobody promised any.
    monkeypatch.setattr(trial, "cards_here", lambda: (NamedCard(name="H200", capability=Capability(9, 0)),))
    answer = verify.verify(wheel)
    found = {check.id: check for check in answer.checks}
    assert found["import"].state.value == state
    assert said in found["import"].found
    assert found["config"].state is State.UNVERIFIED
    assert answer.state is (State.UNVERIFIED if state == "PASS" else State.FAIL)
    with verify.static_checks.opened(wheel) as read:
        assert verify.static_checks.modules(read) == ("glow", "spark")


def test_without_a_card_the_measurements_that_were_asked_for_are_unverified_by_name(tmp_path: Path) -> None:
    wheel = torch_like.wheel(tmp_path, libraries={"torch/lib/kernels.fatbin": (("sm_61",),)})
    asked = ("bench-fp32", "bench-fp16", "bench-conv", "peer-copy", "all-reduce")
    done = verify.verify(wheel, expected=verify.Expected(bench=True, all_gpus=True), run=False)
    states = {check.id: check.state for check in done.checks}
    assert [states[name] for name in asked] == [State.UNVERIFIED] * 5
    assert [check.number for check in done.checks] == list(range(1, len(done.checks) + 1))
    plain = verify.verify(wheel, run=False)
    assert not {check.id for check in plain.checks} & set(asked)


class OtherCard:
    """The torch of a machine whose card is newer than the one that the wheel is for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tried: list[int] = []
        h200 = NamedCard(name="NVIDIA H200", capability=Capability(9, 0))
        made = Finding(id="install", state=State.PASS, found="installed")
        monkeypatch.setattr(trial, "cards_here", lambda: (h200,))
        monkeypatch.setattr(trial, "_installed", lambda *_: trial.TrialRun(python=Path("python"), finding=made))
        monkeypatch.setattr(trial, "facts", self.facts)
        monkeypatch.setattr(trial, "on_card", self.on_card)

    def facts(self, environment: trial.TrialRun) -> list[trial.TrialAnswer]:
        environment.facts = {
            "version": "1.13.1+cu118", "cuda": "11.8", "python": "3.11.2", "config": "", "cuda_available": True,
            "cards": [{"index": 0, "name": "NVIDIA H200", "capability": "9.0"}],
        }  # fmt: skip
        names = ("import", "cpu", "numpy")
        return [trial.TrialAnswer(id=name, finding=Finding(id=name, state=State.PASS, found="good")) for name in names]

    def on_card(self, _: trial.TrialRun, index: int, names: tuple[str, ...]) -> list[trial.TrialAnswer]:
        self.tried.append(index)
        return [trial.TrialAnswer(id=name, finding=Finding(id=name, state=State.PASS, found="good")) for name in names]


@pytest.mark.parametrize("targets", [("sm_35", "compute_35"), ("sm_35",)])
def test_a_card_that_it_was_not_made_for_leaves_it_unverified_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, targets: tuple[str, ...]
) -> None:
    """Who builds for a K40 on a machine with a newer card must not be stopped by that card."""
    wheel = torch_like.wheel(tmp_path, libraries={"torch/lib/kernels.fatbin": (targets,)}, version="1.13.1+cu118")
    other = OtherCard(monkeypatch)
    done = verify.verify(wheel, expected=verify.Expected(cards=("sm_35",)))
    found = {check.id: check for check in done.checks}
    assert found["coverage"].state is State.PASS, found["coverage"].found
    assert other.tried == []
    assert "NVIDIA H200 (9.0)" in found["training"].found and "sm_35" in found["training"].found
    assert {found[name].state for name in ("cuda", *verify.ON_CARD)} == {State.UNVERIFIED}
    assert State.FAIL not in {check.state for check in done.checks}


def test_a_card_that_is_named_or_served_by_its_own_code_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = {"torch/lib/kernels.fatbin": (("sm_35", "compute_35"),)}
    wheel = torch_like.wheel(tmp_path, libraries=library, version="2.0.1+cu118")
    other = OtherCard(monkeypatch)
    verify.verify(wheel)
    verify.verify(wheel, expected=verify.Expected(cards=("sm_35", "sm_90")))
    both = torch_like.wheel(
        tmp_path, libraries={"torch/lib/kernels.fatbin": (("sm_35", "sm_90"),)}, version="1.13.1+cu118"
    )
    verify.verify(both, expected=verify.Expected(cards=("sm_35",)))
    assert other.tried == [0, 0, 0]


class OneCardOf35:
    class cuda:
        have = ("sm_35", "compute_35")

        @classmethod
        def get_arch_list(cls) -> list[str]:
            return list(cls.have)

        @staticmethod
        def get_device_capability(_: object) -> tuple[int, int]:
            return 9, 0

        @staticmethod
        def get_device_name(_: object) -> str:
            return "NVIDIA H200"


def test_a_card_served_by_the_drivers_compiler_is_not_called_unserved(monkeypatch: pytest.MonkeyPatch) -> None:
    said = ask_torch_checks.arch_list(OneCardOf35, 0)
    assert "the driver compiles compute_35" in said
    monkeypatch.setattr(OneCardOf35.cuda, "have", ("sm_35",))
    with pytest.raises(ask_torch_checks.Wrong, match="served by none"):
        ask_torch_checks.arch_list(OneCardOf35, 0)


def test_what_the_driver_compiled_is_kept_where_that_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it a torch that is served by JIT waits for the driver at every check, for minutes."""
    seen: list[dict[str, str]] = []

    def ask(*_: object, env: dict[str, str], **__: object) -> Result:
        seen.append(env)
        return Result(args=("python",), code=0, out="", err="")

    monkeypatch.setattr(trial, "ask", ask)
    made = Finding(id="install", state=State.PASS, found="installed")
    for folder in (tmp_path / "jit", None):
        trial.on_card(trial.TrialRun(python=Path("python"), finding=made, jit_cache=folder), 0, verify.ON_CARD)
    assert seen[0]["CUDA_CACHE_PATH"] == str(tmp_path / "jit")
    assert seen[0]["CUDA_CACHE_DISABLE"] == "0"
    assert seen[1]["CUDA_CACHE_DISABLE"] == "1"


@pytest.mark.long
def test_an_extension_is_tried_beside_the_torch_of_an_environment(tmp_path: Path) -> None:
    artefacts.needs_environments()
    import venv

    home = tmp_path / "home"
    venv.create(home, with_pip=False, symlinks=os.name != "nt")
    site = find(home).site
    (site / "torch").mkdir()
    (site / "torch" / "__init__.py").write_text("answer = 42\n", encoding="utf-8")
    (site / "torch-2.7.1.dist-info").mkdir()
    (site / "torch-2.7.1.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: torch\nVersion: 2.7.1\n", encoding="utf-8"
    )
    wheel = tmp_path / "addon-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("addon.py", "import torch\nanswer = torch.answer\n")
        info = "addon-1.0.dist-info"
        file.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: addon\nVersion: 1.0\nRequires-Dist: torch\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")
    with trial.environment(trial.TrialSetup(wheel=wheel, torch=home)) as made:
        assert made.python is not None, made.finding
        said = call([made.python, "-c", "import addon; print(addon.answer)"], timeout=120)
    assert said.out.strip() == "42", said.err
    assert not (site / "addon.py").exists()
