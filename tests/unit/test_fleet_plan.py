"""`rekindle fleet plan`: a matrix, its jobs, their reasons and their order."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import tarfile
from pathlib import Path

import pytest

from rekindle.core import paths
from rekindle.core.errors import BadInput
from rekindle.fleet import job as sources
from rekindle.fleet import matrix_file, planning, shelved
from rekindle.fleet.job import JobState
from rekindle.fleet.shelved import ShelvedJob
from rekindle.formats import unpacking
from rekindle.inputs.versions import read_cuda
from rekindle.stack.resolver import resolve
from rekindle.stack.rules import RouteKind
from rekindle.stack.situation import Wish, situation_from_options
from support.command import rekindle_command
from support.cuda import project
from support.small_wheels import make as small_wheel

ORPHANS = """
torch = ["2.15.0"]
cuda = ["12.6"]
gpu = ["5.0;6.0;7.0"]
python = ["3.11", "3.12", "3.8"]
os = ["linux", "windows"]

[[include]]
torch = "2.7.1"
cuda = "11.8"
gpu = "Tesla K40c"

[[include]]
torch = "2.15.0"
cuda = "12.6"
gpu = "Tesla K40c"
os = "linux"
python = "3.12"

[[include]]
torch = "2.7.1"
cuda = "12.6"
gpu = "GTX 1080 Ti"
os = "windows"
python = "3.11"

[[exclude]]
os = "windows"
python = "3.12"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "matrix.toml"
    path.write_text(text, encoding="utf-8")
    return path


def by_state(made: planning.Planned, state: JobState) -> list[str]:
    return [job.name for job in made.plan.jobs if job.state is state]


@pytest.fixture
def orphans(tmp_path: Path) -> planning.Planned:
    return planning.make(written(tmp_path, ORPHANS), workers=20)


def test_every_combination_is_built_or_says_why_not(orphans: planning.Planned) -> None:
    assert set(by_state(orphans, JobState.BUILD)) == {
        "torch-2.15.0-cu126-sm50.sm60.sm70-py311-linux-x86_64",
        "torch-2.15.0-cu126-sm50.sm60.sm70-py312-linux-x86_64",
        "torch-2.15.0-cu126-sm50.sm60.sm70-py311-windows-x86_64",
        "torch-2.7.1-cu118-sm35-py311-linux-x86_64",
        "torch-2.7.1-cu118-sm35-py312-linux-x86_64",
        "torch-2.7.1-cu118-sm35-py311-windows-x86_64",
    }
    reasons = {job.name: job.reason for job in orphans.plan.jobs if job.state is JobState.IMPOSSIBLE}
    assert "sm_35" in reasons.pop("torch-2.15.0-cu12.6-Tesla_K40c-3.12-linux")
    assert len(reasons) == 4 and all("is for Python 3." in reason for reason in reasons.values())


def test_a_job_that_an_official_wheel_serves_is_not_needed_as_the_resolver_says(orphans: planning.Planned) -> None:
    (job,) = [job for job in orphans.plan.jobs if job.state is JobState.NOT_NEEDED]
    alone = resolve(
        situation_from_options(["GTX 1080 Ti"], system="windows", python="3.11"),
        Wish(torch="2.7.1", cuda=read_cuda("12.6")),
    ).recommended
    assert alone.route is RouteKind.OFFICIAL_WHEEL
    assert "2.7.1+cu126" in job.reason and "2.7.1+cu126" in alone.summary


def test_the_longest_come_first_and_a_further_python_takes_a_share(orphans: planning.Planned) -> None:
    building = [job for job in orphans.plan.jobs if job.state is JobState.BUILD]
    assert [job.order for job in building] == list(range(1, 7))
    minutes = {job.name: job.estimate.minutes or 0 for job in building}
    first = minutes["torch-2.15.0-cu126-sm50.sm60.sm70-py311-linux-x86_64"]
    assert minutes["torch-2.15.0-cu126-sm50.sm60.sm70-py312-linux-x86_64"] == round(first / 10)
    assert building[0].estimate.minutes == max(minutes.values())
    totals = orphans.plan.totals
    assert totals.minutes == sum(minutes.values())
    assert totals.wall_minutes == first + round(first / 10), "on enough machines the longest chain decides"


def test_machines_that_share_nothing_that_was_compiled_give_no_share(tmp_path: Path) -> None:
    text = 'torch = "2.15.0"\ncuda = "12.6"\npython = ["3.11", "3.12"]\ngpu = "sm_61"\n'
    alone = planning.make(written(tmp_path, text), one_cache=False).plan
    assert len({job.estimate.minutes for job in alone.jobs if job.state is JobState.BUILD}) == 1


def test_cards_of_one_capability_are_one_job_and_one_question(tmp_path: Path) -> None:
    text = 'torch = "2.15.0"\ncuda = "12.6"\npython = "3.12"\ngpu = ["GTX 1080 Ti", "GTX 1070", "Tesla P40", "sm_61"]\n'
    made = planning.make(written(tmp_path, text))
    (job,) = [job for job in made.plan.jobs if job.state is JobState.BUILD]
    assert [cell.gpu for cell in job.cells] == ["GTX 1080 Ti", "GTX 1070", "Tesla P40", "sm_61"]
    assert made.plan.questions < 4


def test_the_key_is_the_hash_of_the_lock_and_not_of_names_or_dates(tmp_path: Path) -> None:
    text = 'torch = "2.15.0"\ncuda = "12.6"\npython = "3.12"\ngpu = "{}"\n'
    keys = {planning.make(written(tmp_path, text.format(gpu))).plan.jobs[0].key for gpu in ("P40", "GTX 1060", "6.1")}
    assert len(keys) == 1
    other = planning.make(written(tmp_path, text.format("6.0"))).plan.jobs[0]
    assert other.key not in keys
    assert other.lock is not None and other.key == other.lock.key


def test_an_option_of_an_override_makes_another_job(tmp_path: Path) -> None:
    text = 'torch = "2.15.0"\ncuda = "12.6"\npython = "3.12"\ngpu = "6.1"\n'
    plain = planning.make(written(tmp_path, text)).plan.jobs[0]
    text += '[[override]]\nwhen = { torch = "2.15.0" }\noptions = { USE_FLASH_ATTENTION = "OFF" }\n'
    made = planning.make(written(tmp_path, text))
    changed = made.plan.jobs[0]
    assert changed.key != plain.key
    assert changed.key is not None and made.plans[changed.key].options == {"USE_FLASH_ATTENTION": "OFF"}


def test_an_extension_waits_for_the_torch_with_the_options_that_an_override_gives_it(tmp_path: Path) -> None:
    rows = 'torch = ["2.15.0"]\ncuda = ["12.6"]\ngpu = ["6.1"]\npython = ["3.12"]\nos = ["linux"]\n'
    rule = '[[override]]\nwhen = { torch = "2.15.0" }\noptions = { USE_FLASH_ATTENTION = "OFF" }\n'
    made = planning.make(written(tmp_path, 'project = ["torch", "torchvision"]\n' + rows + rule))
    torch, vision = made.plan.jobs
    assert (vision.state, vision.needs) == (JobState.BUILD, (torch.key,))


def test_what_is_impossible_for_every_card_is_said_once(tmp_path: Path) -> None:
    rows = 'project = ["torch"]\ncuda = ["11.8"]\ngpu = ["5.0;6.0;7.0"]\npython = ["3.12"]\nos = ["linux"]\n'
    for torch in ("2.14.1", "2.99.0"):
        job = planning.make(written(tmp_path, f'torch = ["{torch}"]\n' + rows)).plan.jobs[0]
        assert job.state is JobState.IMPOSSIBLE
        assert job.reason.count(f"PyTorch {torch} ") <= 2 and "none at all" not in job.reason


def test_torchvision_waits_for_the_torch_that_has_to_be_built(tmp_path: Path) -> None:
    text = 'torch = "2.15.0"\ncuda = "12.6"\npython = "3.12"\ngpu = "6.1"\n'
    made = planning.make(written(tmp_path, 'project = ["torchvision", "torch"]\n' + text))
    torch, vision = made.plan.jobs
    assert vision.needs == (torch.key,) and (torch.order, vision.order) == (1, 2)
    alone = planning.make(written(tmp_path, 'project = ["torchvision"]\n' + text)).plan.jobs[0]
    assert alone.state is JobState.IMPOSSIBLE and "add project `torch`" in alone.reason


CMAKE = """
project = ["spark"]
cuda = ["11.8", "13.0"]
gpu = ["3.5", "7.5"]
python = ["3.11", "3.12"]
arch = "aarch64"

[projects.spark]
build = "spark/build.toml"
minutes = 3
"""


def test_a_project_of_your_own_is_planned_with_the_toolkits_that_compile_for_the_cards(tmp_path: Path) -> None:
    shutil.copytree(project("spark"), tmp_path / "spark")
    made = planning.make(written(tmp_path, CMAKE))
    assert sorted(by_state(made, JobState.BUILD)) == [
        "spark-cu118-sm35-linux-aarch64", "spark-cu118-sm75-linux-aarch64", "spark-cu130-sm75-linux-aarch64",
    ]  # fmt: skip
    assert all(len(job.cells) == 2 for job in made.plan.jobs if job.state is JobState.BUILD), "a Python is not in it"
    versions = {job.lock.version for job in made.plan.jobs if job.lock}
    assert versions == {"1.0+cu118.sm35", "1.0+cu118.sm75", "1.0+cu130.sm75"}
    before = {job.key for job in made.plan.jobs}
    (tmp_path / "spark" / "spark" / "__init__.py").write_text("changed = 1\n", encoding="utf-8")
    after = {job.key for job in planning.make(written(tmp_path, CMAKE)).plan.jobs if job.key}
    assert not before & after, "another source is another job"


def test_a_matrix_without_a_toolkit_takes_that_of_the_build_file(tmp_path: Path) -> None:
    """The cards are not dropped, with a wheel without GPU code in their place; `cpu` asks for one."""
    shutil.copytree(project("spark"), tmp_path / "spark")
    made = planning.make(written(tmp_path, CMAKE.replace('cuda = ["11.8", "13.0"]\n', "")))
    assert sorted(by_state(made, JobState.BUILD)) == [
        "spark-cu118-sm35-linux-aarch64",
        "spark-cu118-sm75-linux-aarch64",
    ]
    made = planning.make(written(tmp_path, CMAKE.replace('["11.8", "13.0"]', '"cpu"')))
    assert list(by_state(made, JobState.BUILD)) == ["spark-cpu-linux-aarch64"]


PYTHONS = """
project = "ember"
cuda = "cpu"
python = ["3.10", "3.11", "3.12"]
[projects.ember]
build = "ember/build.toml"
"""


@pytest.mark.parametrize(
    ("change", "backend", "wheels"),
    [
        ({}, "scikit-build-core", ["3.10", "3.11", "3.12"]),
        ({"build.toml": ('name = "ember"', 'name = "ember"\nbackend = "cmake"')}, "cmake", [None]),
        ({"pyproject.toml": ("scikit", "other"), "CMakeLists.txt": ("", "")}, "cmake", [None]),
        ({"pyproject.toml": ("scikit", "other"), "setup.py": ("", "")}, "setup.py", ["3.10", "3.11", "3.12"]),
        ({"pyproject.toml": ("wheel.packages", 'wheel.py-api = "py3"\nwheel.packages')}, "scikit-build-core", [None]),
        (
            {"pyproject.toml": ("wheel.packages", 'wheel.py-api = "cp311"\nwheel.packages')},
            "scikit-build-core",
            ["3.10", "3.11"],
        ),
    ],
    ids=["looked", "named", "no-python", "setup.py", "py3", "abi3"],
)
def test_the_source_says_whether_a_wheel_is_for_one_python(
    tmp_path: Path, change: dict[str, tuple[str, str]], backend: str, wheels: list[str | None]
) -> None:
    """A build file without a backend was taken for Python-free: of three wheels one was built, and all were "done"."""
    shutil.copytree(project("ember"), tmp_path / "ember")
    for name, (old, new) in change.items():
        file = tmp_path / "ember" / name
        file.touch()
        file.write_text(file.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    made = planning.make(written(tmp_path, PYTHONS))
    locks = [job.lock for job in made.plan.jobs if job.lock]
    assert sorted(lock.python or "" for lock in locks) == [each or "" for each in wheels]
    assert {lock.backend for lock in locks} == {backend}
    assert made.plan.totals.build == len(wheels)
    assert sorted(str(cell.python) for job in made.plan.jobs for cell in job.cells) == ["3.10", "3.11", "3.12"]


def test_what_is_on_the_shelf_is_done_until_the_wheel_is_gone(tmp_path: Path) -> None:
    from rekindle.wheels.shelf import shelf

    shutil.copytree(project("spark"), tmp_path / "spark")
    place = tmp_path / "shelf"
    (entry,) = shelf.add(place, [small_wheel(tmp_path)])
    first = planning.make(written(tmp_path, CMAKE)).plan.jobs[0]
    assert first.lock is not None and first.key is not None
    shelved.record(place, ShelvedJob(key=first.key, wheel=entry.file, sha256=entry.sha256, lock=first.lock, minutes=7))
    again = planning.make(written(tmp_path, CMAKE), shelf_folder=place)
    (done,) = [job for job in again.plan.jobs if job.state is JobState.DONE]
    assert (done.key, done.wheel) == (first.key, entry.file)
    shelf.remove(place, [entry.file])
    assert not by_state(planning.make(written(tmp_path, CMAKE), shelf_folder=place), JobState.DONE)


def test_a_record_that_was_changed_by_hand_does_not_count(tmp_path: Path) -> None:
    from rekindle.wheels.shelf import shelf

    shutil.copytree(project("spark"), tmp_path / "spark")
    (entry,) = shelf.add(tmp_path / "shelf", [small_wheel(tmp_path)])
    first, second, *_ = planning.make(written(tmp_path, CMAKE)).plan.jobs
    assert first.lock is not None and second.key is not None
    told = ShelvedJob(key=second.key, wheel=entry.file, sha256=entry.sha256, lock=first.lock)
    shelved.record(tmp_path / "shelf", told)
    assert shelved.jobs_on(tmp_path / "shelf") == {}


def test_snapshots_can_be_the_matrix(tmp_path: Path) -> None:
    machines = sorted((Path(__file__).parents[1] / "machines").glob("*.json"))[:3]
    assert machines
    seen = rekindle_command(
        "fleet", "plan", str(written(tmp_path, 'torch = "2.7.1"\n')), "--shelf", str(tmp_path / "s"), "--json",
        *(word for path in machines for word in ("--machine", str(path))),
    )  # fmt: skip
    assert seen.code == 0, seen.err
    cells = [cell for job in seen.json()["jobs"] for cell in job["cells"]]
    assert sorted(cell["machine"] for cell in cells) == sorted(map(str, machines))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('torc = "2.7"\n', "there is no key `torc`"),
        ('schema = "other/1"\n', "is not a matrix"),
        ('[[exclude]]\ncolour = "red"\n', "`colour` names no axis"),
        ("[[exclude]]\n", "names no axis"),
        ("[projects.a]\n", "needs either `build` or `source`"),
        ("gpu = [1]\n", "cannot be read"),
    ],
)
def test_a_matrix_that_was_not_understood_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        matrix_file.read(written(tmp_path, text))
    assert said in caught.value.message


def test_a_matrix_without_end_is_refused(tmp_path: Path) -> None:
    words = json.dumps([str(number) for number in range(400)])
    made = matrix_file.read(written(tmp_path, f"torch = {words}\ncuda = {words}\n"))
    with pytest.raises(BadInput, match="160,000 combinations"):
        list(matrix_file.cells(made))


def test_blocks_of_a_matrix_are_counted_together(tmp_path: Path) -> None:
    words = json.dumps([str(number) for number in range(200)])
    made = matrix_file.read(written(tmp_path, f"torch = {words}\ncuda = {words}\n" + "[[include]]\n" * 3))
    with pytest.raises(BadInput, match="160,000 combinations"):
        list(matrix_file.cells(made))


def test_combinations_are_not_compared_with_every_rule(tmp_path: Path) -> None:
    """A hundred kilobytes of `[[exclude]]` and some thousand combinations took fifteen seconds."""
    words = json.dumps([f"2.{number}" for number in range(300)])
    rules = "".join(f'[[exclude]]\ntorch = "9.{number}"\n' for number in range(2000))
    rules += '[[exclude]]\ntorch = "2.7"\npython = "3.11"\n' * 2
    made = matrix_file.read(written(tmp_path, f'torch = {words}\npython = ["3.11", "3.12"]\n{rules}'))
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        found = list(matrix_file.cells(made))
    finally:
        sys.setprofile(None)
    assert len(found) == 599 and calls < 100_000, calls


def test_the_overrides_of_a_matrix_are_limited_and_hold_in_their_order(tmp_path: Path) -> None:
    cell = matrix_file.MatrixCell(project="torch", torch="2.7", gpu="3.5")
    find = matrix_file.rules_for([({"torch": "2.7"}, 1), ({"gpu": "3.5"}, 2), ({"torch": "2.7"}, 3), ({"os": "x"}, 4)])
    assert find(cell) == [1, 2, 3]
    many = '[[override]]\nwhen = {torch = "2.7"}\n' * 1001
    with pytest.raises(BadInput, match="1,001 entries"):
        matrix_file.read(written(tmp_path, many))


def test_a_source_travels_as_the_same_bytes_and_nothing_escapes(tmp_path: Path) -> None:
    packed = sources.pack_source(project("spark"))
    sources.unpack_source(packed, tmp_path / "a")
    assert sources.digest_source(tmp_path / "a") == sources.digest_source(project("spark"))
    assert sources.pack_source(tmp_path / "a") == packed
    for name in ("../out", "/abs", "a/../../b", "c:d"):
        with pytest.raises(BadInput):
            sources.unpack_source(archive_of(name), tmp_path / "b")


def test_windows_refuses_a_source_with_the_name_of_a_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "system", lambda: "windows")
    with pytest.raises(BadInput, match="the name of a device on Windows"):
        sources.unpack_source(archive_of("csrc/aux.c"), tmp_path / "a")
    monkeypatch.setattr(paths, "system", lambda: "linux")
    if os.name != "nt":
        sources.unpack_source(archive_of("csrc/aux.c"), tmp_path / "b")
        assert (tmp_path / "b" / "csrc" / "aux.c").is_file()


def test_a_source_of_nothing_but_folders_is_refused(tmp_path: Path) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for number in range(500):
            archive.addfile(tarfile.TarInfo(f"m{number}/" + "d/" * 44 + "f"))
    with pytest.raises(BadInput, match="more than 20,000 folders"):
        sources.unpack_source(stream.getvalue(), tmp_path / "a")
    package = tmp_path / "part.tar"
    package.write_bytes(stream.getvalue())
    with pytest.raises(BadInput, match="more than 20,000 folders"):
        list(unpacking.entries(package))


def archive_of(name: str) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        archive.addfile(tarfile.TarInfo(name))
    return stream.getvalue()


def test_a_matrix_of_which_nothing_can_be_built_does_not_pass(tmp_path: Path) -> None:
    matrix = tmp_path / "matrix.toml"
    matrix.write_text("", encoding="utf-8")
    assert rekindle_command("fleet", "plan", str(matrix)).code == 5
    seen = rekindle_command("fleet", "run", str(matrix), "--shelf", str(tmp_path / "shelf"))
    assert seen.code == 5 and "no GPU is named" in seen.out


def test_a_row_that_is_impossible_as_one_is_split(tmp_path: Path) -> None:
    """A row of every card was "impossible", and nobody said which card, or how it goes."""
    rows = 'project = ["torch"]\ntorch = ["2.7.1"]\ncuda = ["11.8"]\npython = ["3.11"]\nos = ["linux"]\n'
    text = f'{rows}gpu = ["3.5;6.1;9.0;12.0"]\n'
    (job,) = planning.make(written(tmp_path, text)).plan.jobs
    assert job.state is JobState.IMPOSSIBLE
    assert 'it works as gpu = ["3.5;6.1", "9.0"]' in job.reason
    assert "none at all for 12.0: CUDA 11.8 cannot compile" in job.reason
    (matrix := tmp_path / "two.toml").write_text(
        text.replace('"3.5;6.1;9.0;12.0"', '"3.5;6.1", "9.0"'), encoding="utf-8"
    )
    assert all(each.state is not JobState.IMPOSSIBLE for each in planning.make(matrix).plan.jobs)


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ('gpus = ["6.1"]\n', 4, "there is no key `gpus` did you mean `gpu`?"),
        ('[projects.x]\nsorce = "x"\n', 4, "there is no key `sorce` in `projects[...]` did you mean `source`?"),
        ('[[include]]\ntroch = "2.7.1"\n', 4, "there is no key `troch` in `include[0]` did you mean `torch`?"),
        ('project = ["scale_add"]\n', 3, "unknown project `scale_add` declare your own as `[projects.scale_add]`"),
    ],
)
def test_a_slip_in_a_matrix_is_named_once_with_what_was_meant(tmp_path: Path, text: str, code: int, says: str) -> None:
    """By hand nobody writes `check that it was written by Rekindle`."""
    (tmp_path / "m.toml").write_text(f'torch = "2.7.1"\npython = ["3.11", "3.12"]\n{text}', encoding="utf-8")
    seen = rekindle_command("fleet", "plan", str(tmp_path / "m.toml"))
    said = " ".join(seen.err.replace("hint: ", "").split())
    assert (seen.code, said.count("unknown project")) == (code, int("project" in text and code == 3))
    assert says in said
