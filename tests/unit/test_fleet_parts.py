"""The parts of a fleet that need no second process: certificates, announcements, journal, state, files in pieces."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import ssl
import stat
import sys
from pathlib import Path
from typing import Any

import dask
import distributed
import msgspec
import pytest

from rekindle.core.errors import BadInput, ChecksFailed, Locked, NotFound, UnknownName, UsageError
from rekindle.core.findings import State
from rekindle.core.untrusted import InsidePath
from rekindle.core.version import Version
from rekindle.diagnose.diagnosis import diagnose_text
from rekindle.fleet import order_run, planning, run, scheduler, shelved, state, view, work
from rekindle.fleet.announcement import AnnouncedToolkit, Announcement, lacks
from rekindle.fleet.intake import Intake
from rekindle.fleet.job import FleetJob, FleetLock, JobKind, JobState, MadeFile
from rekindle.fleet.shelved import ShelvedJob
from rekindle.fleet.state import FleetJournal, FleetState, event
from rekindle.model.wheel import WheelIdentity
from rekindle.wheels.shelf import shelf
from support import fatbins, small_wheels
from support.command import rekindle_command
from support.cuda import project

MATRIX = """
project = ["spark"]
cuda = ["11.8", "13.0"]
gpu = ["3.5", "7.5"]
[projects.spark]
build = "spark/build.toml"
memory_gb = 4
disk_gb = 2
"""


@pytest.fixture
def planned(tmp_path: Path) -> planning.Planned:
    shutil.copytree(project("spark"), tmp_path / "spark")
    (tmp_path / "matrix.toml").write_text(MATRIX, encoding="utf-8")
    return planning.make(tmp_path / "matrix.toml")


def job(planned: planning.Planned, name: str) -> FleetJob:
    return next(each for each in planned.plan.jobs if each.name == name)


HAVE = Announcement(
    name="a",
    system="linux",
    machine="x86_64",
    cores=8,
    memory_gb=32,
    disk_gb=100,
    toolkits=(AnnouncedToolkit(version="11.8", targets=("sm_35", "sm_75")),),
    pythons=("3.11",),
    gcc=("11.4.0", "12.2.0"),
)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, ()),
        ({"system": "windows"}, ("linux on x86_64",)),
        ({"machine": "aarch64"}, ("linux on x86_64",)),
        ({"toolkits": ()}, ("CUDA 11.8",)),
        (
            {"toolkits": (AnnouncedToolkit(version="11.8", targets=("sm_75",)),)},
            ("a CUDA 11.8 that compiles for sm_35",),
        ),
        ({"gcc": ("12.2.0",)}, ("a GCC that CUDA 11.8 takes",)),
        ({"memory_gb": 2.0}, ("4 GB of memory",)),
        ({"disk_gb": 1.0}, ("2 GB of disk",)),
        ({"rekindle": "0.0"}, None),
        ({"toolkits": (), "provisions": ("cuda==11.8",)}, ()),
    ],
)
def test_a_job_goes_only_where_it_can_be_built(
    planned: planning.Planned, change: dict[str, object], said: tuple[str, ...] | None
) -> None:
    have = msgspec.structs.replace(HAVE, **change)
    found = lacks(job(planned, "spark-cu118-sm35-linux-x86_64"), have)
    assert found == said if said is not None else "rekindle" in found[0]


@pytest.mark.parametrize("package", ["cryptography", "distributed"])
def test_a_plain_install_says_what_a_fleet_needs(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`fleet certs` and `fleet run` ended with an internal error."""
    monkeypatch.setitem(sys.modules, package, None)
    seen = rekindle_command("fleet", "certs", "-o", str(tmp_path / "certs"))
    assert (seen.code, f"needs the package `{package}`" in seen.err) == (6, True), seen
    assert "[fleet]" in seen.err and not (tmp_path / "certs").exists()


def test_certificates_are_valid_for_both_ends_and_only_their_owner_reads_the_keys(tmp_path: Path) -> None:
    made = scheduler.make(tmp_path / "c", ("build.example", "10.1.2.3"))
    assert made.hosts == ("localhost", "127.0.0.1", "build.example", "10.1.2.3")
    for role in scheduler.ROLES:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tmp_path / "c" / f"{role}.pem", tmp_path / "c" / f"{role}-key.pem")
        if os.name != "nt":
            assert stat.S_IMODE((tmp_path / "c" / f"{role}-key.pem").stat().st_mode) == 0o600
    with pytest.raises(UsageError, match="not empty"):
        scheduler.make(tmp_path / "c")


def test_a_handshake_needs_a_certificate_of_the_same_authority(tmp_path: Path) -> None:
    scheduler.make(tmp_path / "ours")
    scheduler.make(tmp_path / "theirs")

    def shake(client: Path | None) -> None:
        with dask.config.set(scheduler.secured(tmp_path / "ours", "scheduler")):
            server = distributed.Security().get_listen_args("scheduler")["ssl_context"]
        asking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        asking.check_hostname = False
        asking.load_verify_locations(tmp_path / "ours" / "ca.pem")
        if client is not None:
            asking.load_cert_chain(client / "client.pem", client / "client-key.pem")
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        ends = [server.wrap_bio(to_server, to_client, server_side=True), asking.wrap_bio(to_client, to_server)]
        for _ in range(8):
            for end in ends:
                try:
                    end.do_handshake()
                except ssl.SSLWantReadError:
                    continue

    shake(tmp_path / "ours")
    for stranger in (tmp_path / "theirs", None):
        with pytest.raises(ssl.SSLError):
            shake(stranger)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no mode bits")
def test_a_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    scheduler.make(tmp_path / "c")
    (tmp_path / "c" / "worker-key.pem").chmod(0o644)
    with pytest.raises(UsageError, match="others may read"):
        scheduler.secured(tmp_path / "c", "worker")
    (tmp_path / "c" / "client.pem").unlink()
    with pytest.raises(NotFound, match=r"lacks client\.pem"):
        scheduler.secured(tmp_path / "c", "client")


@pytest.mark.parametrize("host", ["0.0.0.0", "build.example", "127.0.0.1", "localhost"])
def test_nothing_starts_without_certificates(host: str) -> None:
    """On loopback other users of the computer could have code run as this one."""
    for words in (("scheduler", "--host", host), ("worker", "--scheduler", f"tcp://{host}:8790")):
        seen = rekindle_command("fleet", *words)
        assert seen.code == 2 and "could run code here" in seen.err


def test_the_journal_survives_a_torn_line_and_refuses_a_broken_one(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    first = FleetJournal(path)
    first.write(event("begin", key="k", worker="w"))
    with path.open("ab") as stream:
        stream.write(b'{"at":"2026","event":"do')
    again = FleetJournal(path)
    assert [each.event for each in again.events] == ["begin"]
    again.write(event("done", key="k"))
    assert [each.event for each in state.read_events(path)] == ["begin", "done"]
    path.write_bytes(b"garbage\n" + path.read_bytes())
    with pytest.raises(BadInput):
        state.read_events(path)


def test_deaths_are_counted_apart_when_others_were_there_and_forgotten_by_a_retry() -> None:
    events = [event("died", key="k", alone=False), event("died", key="k", alone=True), event("died", key="x")]
    assert state.deaths(events, "k") == (2, 1)
    assert state.deaths([*events, event("retry", key="k")], "k") == (0, 0)


def test_status_tells_from_the_journal_what_is_where(tmp_path: Path, planned: planning.Planned) -> None:
    place = FleetState(tmp_path / "s")
    with place.held():
        place.keep(planned)
    keys = [each.key for each in planned.plan.jobs if each.lock]
    log = FleetJournal(place.journal)
    log.write(event("start", name="/shelf"))
    log.write(event("begin", key=keys[0], worker="a"))
    log.write(event("done", key=keys[0], worker="a", wheel="x-1.0+cu118-py3-none-any.whl", seconds=3.0))
    found = diagnose_text("nvcc fatal   : Unsupported gpu architecture 'compute_35'\n")
    log.write(event("failed", key=keys[1], worker="a", error="compile: `ninja` exited with code 1", diagnosis=found))
    log.write(event("begin", key=keys[2], worker="a"))
    seen = state.status_of(place)
    assert seen.counts == {"done": 1, "failed": 1, "waiting": 1, "impossible": 1}, "nobody runs it: it waits"
    assert state.status_of(place, running=True).counts["running"] == 1
    text = "\n".join(view.status_lines(seen))
    assert "1 done, 1 waiting, 1 failed, 1 impossible" in text and "fix:" in text
    assert "pip install --extra-index-url" in text and "x==1.0+cu118" in text
    seen_ = rekindle_command("fleet", "status", "--state", str(place.root), "--json")
    assert seen_.json()["jobs"][0]["state"] == "done"
    told = rekindle_command("fleet", "status", "--state", str(place.root)).out
    # Windows' shells quote the folder, and a long line is broken.
    plain = "".join(told.split())
    assert "rekindlefleetretry--failed--state" in plain, "of this run, not of the one in matrix.fleet"
    assert "".join(str(place.root).split()) in plain


def test_a_word_of_a_journal_that_is_no_answer_is_unverified() -> None:
    """It was an internal error of `status` and `report`."""
    said = state.check_outcome(event("checked", key="a" * 64, step="EVIL"))
    assert said is not None and said.state is State.UNVERIFIED


@pytest.mark.skipif(os.name == "nt", reason="links need a right of their own there")
@pytest.mark.parametrize("name", ["cancel", "arriving", "logs", "journal.jsonl", "plan.json"])
def test_a_run_keeps_nothing_behind_a_link(tmp_path: Path, name: str) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "mine").mkdir()
    (tmp_path / "s" / name).symlink_to(tmp_path / "mine")
    with pytest.raises(BadInput, match="is a link"):
        FleetState(tmp_path / "s")


@pytest.mark.skipif(os.name == "nt", reason="links need a right of their own there")
def test_what_is_noted_and_what_arrives_follows_no_link(tmp_path: Path, planned: planning.Planned) -> None:
    place = FleetState(tmp_path / "s")
    key = next(each.key for each in planned.plan.jobs if each.key)
    for folder in (place.asked, place.arriving):
        folder.mkdir(parents=True)
    (place.asked / key).symlink_to(tmp_path / "new")
    with pytest.raises(BadInput, match="is a link"):
        place.ask_cancel((key,))
    (place.arriving / key[:16]).symlink_to(tmp_path)
    made = MadeFile(name=InsidePath("x.whl"), sha256=key, size=1)
    with pytest.raises(BadInput, match="is a link"):
        asyncio.run(Intake(planned, place, tmp_path, print)._fetch(None, "", key, made, place.arriving / key[:16]))
    place.logs.symlink_to(tmp_path)
    with pytest.raises(BadInput, match="is a link"):
        Intake(planned, place, tmp_path, print).keep_log(key, "a line")
    assert not (tmp_path / "new").exists() and not [*tmp_path.glob("*.part"), *tmp_path.glob("*.log")]


def test_two_runs_of_one_matrix_do_not_go_together(tmp_path: Path) -> None:
    place = FleetState(tmp_path / "s")
    with place.held(), pytest.raises(Locked), FleetState(tmp_path / "s").held():
        pass


def test_cancel_is_a_note_for_the_run(tmp_path: Path, planned: planning.Planned) -> None:
    place = FleetState(tmp_path / "s")
    with place.held():
        place.keep(planned)
    name = planned.plan.jobs[0].name
    seen = rekindle_command("fleet", "cancel", "--state", str(place.root), "--job", name)
    assert seen.code == 0, seen.err
    assert place.cancelled() == {planned.plan.jobs[0].key}
    assert "no run is on: `resume` begins by cancelling 1 job" in " ".join(seen.err.split())
    assert (
        rekindle_command("fleet", "cancel", "--state", str(place.root), "--job", "nonsense").code
        == UnknownName.exit_code
    )


@pytest.mark.parametrize("verb", ["run", "retry", "resume"])
def test_what_was_cancelled_is_begun_again_by_a_run(
    verb: str, tmp_path: Path, planned: planning.Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After `fleet cancel` no verb built the jobs again: `run`, `retry` and `resume` ended with `cancelled` at once."""
    place = FleetState(tmp_path / "s")
    keys = {job.key for job in planned.plan.jobs if job.key}
    with place.held():
        place.keep(planned)
        journal = FleetJournal(place.journal)
        for job in planned.plan.jobs:
            if job.key:
                journal.write(event("cancelled", key=job.key, name=job.name))
    place.ask_cancel(tuple(keys))
    begun: list[set[str]] = []

    def carried(_planned: object, there: FleetState, *_: object) -> None:
        begun.append({job.key for job in state.status_of(there).jobs if job.state == "waiting" and job.key})

    monkeypatch.setattr(run, "_carry_out", carried)
    monkeypatch.setattr(planning, "make", lambda *_, **__: planned)
    settings = run.RunSettings(shelf=tmp_path / "shelf")
    if verb == "run":
        run.run(tmp_path / "matrix.toml", place, settings, tell=print)
    elif verb == "retry":
        run.retry(place, settings, (), tell=print)
    else:
        run.resume(place, settings, tell=print)
    assert begun == [set() if verb == "resume" else keys]
    assert bool(place.cancelled()) == (verb == "resume")


def test_what_was_cancelled_can_be_taken_up_again(
    tmp_path: Path, planned: planning.Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`run`, `resume` and `retry --failed` all said "cancelled" again, and nothing said how to go on."""
    place = FleetState(tmp_path / "s")
    with place.held():
        place.keep(planned)
    key = planned.plan.jobs[0].key
    FleetJournal(place.journal).write(event("cancelled", key=key))
    told = rekindle_command("fleet", "status", "--state", str(place.root)).out
    assert "rekindlefleetretry--failed--state" in "".join(told.split())
    monkeypatch.setattr(run, "_carry_out", lambda *given: None)
    run.retry(place, run.RunSettings(shelf=tmp_path / "shelf"), (), tell=print)
    assert [each.event for each in FleetJournal(place.journal).events if each.key == key] == ["cancelled", "retry"]


def test_files_travel_in_pieces_and_by_hash(tmp_path: Path) -> None:
    import hashlib

    work.settle(tmp_path, HAVE, None)
    data = b"abcdef" * 1000
    sha256 = hashlib.sha256(data).hexdigest()
    work.take_piece(sha256, 0, data[:100], False)
    assert work.has_file(sha256) == 100
    work.take_piece(sha256, 100, data[100:], True)
    assert work.has_file(sha256) == -1 and work.received_file(sha256).read_bytes() == data
    wrong = hashlib.sha256(b"other").hexdigest()
    with pytest.raises(BadInput, match="other bytes"):
        work.take_piece(wrong, 0, data, True)
    assert work.has_file(wrong) == 0
    (work.job_folder(sha256)).mkdir(parents=True)
    (work.job_folder(sha256) / "f").write_bytes(data)
    assert work.give_piece(sha256, "f", 10) == data[10:]
    for name in ("../../worker.json", "/etc/passwd"):
        with pytest.raises(BadInput):
            work.give_piece(sha256, name, 0)
    with pytest.raises(BadInput):
        work.has_file("../../x")


def test_an_order_whose_key_is_not_that_of_its_lock_is_refused(tmp_path: Path, planned: planning.Planned) -> None:
    from rekindle.core import codec
    from rekindle.fleet.job import JobOrder

    work.settle(tmp_path, HAVE, None)
    one = planned.plan.jobs[0]
    assert one.lock is not None
    order = JobOrder(key="0" * 64, name=one.name, lock=one.lock)
    with pytest.raises(BadInput, match="key"):
        work.build(codec.to_json(order))


def test_the_governor_keeps_a_job_within_its_part_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    import subprocess
    import sys

    from rekindle.build.governor.memory import SHARE, Watch

    monkeypatch.setenv(SHARE, str(300 * 1024**2))
    before = Watch().sample()
    assert before.total == 300 * 1024**2
    code = "x = bytearray(200 * 1024**2); print(1, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "1\n"
        during = Watch().sample()
        holder.communicate("\n")
    assert during.available is not None and during.available < 110 * 1024**2
    monkeypatch.setenv(SHARE, "nonsense")
    assert (Watch().sample().total or 0) > 300 * 1024**2


def test_a_job_that_this_machine_cannot_build_says_what_it_lacks(tmp_path: Path, planned: planning.Planned) -> None:
    other = "aarch64" if os.name == "nt" or os.uname().machine == "x86_64" else "x86_64"
    text = MATRIX.replace('project = ["spark"]', f'project = ["spark"]\narch = "{other}"')
    (tmp_path / "matrix.toml").write_text(text, encoding="utf-8")
    name = planning.make(tmp_path / "matrix.toml").plan.jobs[0].name
    words = ["fleet", "job", str(tmp_path / "matrix.toml"), name, "--shelf", str(tmp_path / "s")]
    seen = rekindle_command(*words, "--work", str(tmp_path / "w"), "--from", str(tmp_path / "nothing"))
    assert seen.code == 2 and f"linux on {other}" in seen.err, seen.err


def test_the_disk_is_asked_once_for_many_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr("rekindle.fleet.state.os.fsync", asked.append)
    log = FleetJournal(tmp_path / "journal.jsonl")
    log.write(event("begin", key="a" * 64))
    assert not log.unsettled, "a beginning may be lost: it is begun again"
    for number in range(50):
        log.write(event("failed", key=f"{number:064}"))
    assert log.unsettled and not asked
    log.settle()
    assert len(asked) == 1 and not log.unsettled
    assert len(state.read_events(tmp_path / "journal.jsonl")) == 51


def static_wheel(folder: Path, payload: bytes) -> Path:
    """A wheel with GPU code that says nothing of its CUDA: it is linked statically."""
    tag = "cp311-cp311-linux_x86_64"
    files = {
        "demo/kernels.fatbin": fatbins.container(fatbins.entry("sm_86", payload=fatbins.cubin(86) + payload)),
        "demo-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n",
        "demo-1.0.dist-info/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(),
    }
    return small_wheels.make(folder, files, name=f"demo-1.0-{tag}.whl")


def test_two_jobs_of_one_name_lie_side_by_side_and_none_replaces_the_other(tmp_path: Path) -> None:
    place = tmp_path / "shelf"
    jobs = [
        FleetLock(project="demo", kind=JobKind.CMAKE, cuda=cuda, arch_list="8.6", system="linux", machine="x86_64")
        for cuda in ("11.8", "13.0")
    ]
    made = []
    for number, lock in enumerate(jobs):
        wheel = static_wheel(tmp_path / str(number), bytes([number]) * 64)
        (entry,) = shelf.add(place, [wheel], shelved.addition(place, lock.key, lock))
        shelved.record(place, ShelvedJob(key=lock.key, wheel=entry.file, sha256=entry.sha256, lock=lock))
        made.append(entry.version)
    assert made == ["1.0+cu118.sm86", "1.0+cu130.sm86"]
    assert set(shelved.jobs_on(place)) == {lock.key for lock in jobs}
    stranger = msgspec.structs.replace(jobs[0], profile="portable")
    with pytest.raises(UsageError, match="another build"):
        shelf.add(place, [static_wheel(tmp_path / "new", b"\7" * 64)], shelved.addition(place, stranger.key, stranger))
    own = shelved.addition(place, jobs[0].key, jobs[0])
    (entry,) = shelf.add(place, [static_wheel(tmp_path / "own", b"\x08" * 64)], own)
    assert entry.version == "1.0+cu118.sm86", "a job may replace its own"


LOCK = FleetLock(
    project="demo", kind=JobKind.CMAKE, cuda="11.8", arch_list="8.6", python="3.11", version="1.0+cu118.sm86",
    system="linux", machine="x86_64",
)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"version": "2.0"}, "the version `1.0`, not `2.0`"),
        ({"python": "3.12"}, "no code for Python 3.12"),
        ({"arch_list": "3.5;8.6"}, "the GPU code `sm_86`, not `sm_35`"),
        ({"system": "windows"}, "the system `linux`, not `windows`"),
        ({"machine": "aarch64"}, "the processor `x86_64`, not `aarch64`"),
        ({"kind": JobKind.TORCH, "project": "torch", "torch": "1.0"}, "the name `demo`, not `torch`"),
        ({"kind": JobKind.EXTENSION, "source": "torchvision==1.0"}, "the name `demo`, not `torchvision`"),
        ({}, None),
        ({"version": None, "project": "as-the-matrix-calls-it"}, None),
    ],
)
def test_a_workers_wheel_is_held_against_its_job(tmp_path: Path, change: dict[str, Any], says: str | None) -> None:
    """Whatever a worker called done was signed and shelved as what the plan had promised."""
    lock = msgspec.structs.replace(LOCK, **change)
    job = FleetJob(name="x", state=JobState.BUILD, key=lock.key, cells=(), lock=lock)
    wheel = static_wheel(tmp_path, b"x" * 64)
    if says is None:
        assert shelved.shelve(tmp_path / "shelf", job, wheel, 1.0).version == "1.0+cu118.sm86"
        return
    with pytest.raises(ChecksFailed, match=re.escape(says)):
        shelved.shelve(tmp_path / "shelf", job, wheel, 1.0)
    assert shelf.entries(tmp_path / "shelf") == ()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"project": "torch"}, "the name `torch`, not `mine`"),
        ({"torch": "2.6.0"}, "the torch `2.6.0`, not `2.7.1`"),
        ({"cuda": Version("12.6")}, "the CUDA `12.6`, not `11.8`"),
        ({"torch": "2.7.1+cu118"}, None),
    ],
)
def test_an_extension_is_for_the_torch_of_its_job(change: dict[str, Any], says: str | None) -> None:
    lock = msgspec.structs.replace(LOCK, kind=JobKind.EXTENSION, project="mine", torch="2.7.1", version=None)
    made = WheelIdentity(project="mine", version="3", tags=("cp311-cp311-linux_x86_64",), targets={"sm_86": 1})
    wrong = shelved.unlike(lock, (), msgspec.structs.replace(made, **change))
    assert wrong == ([says] if says else [])


def test_the_log_that_is_shown_is_of_this_try(tmp_path: Path) -> None:
    """A round before failed while compiling; this one fails before, and its words are those that count."""
    logs = tmp_path / "w" / "logs"
    logs.mkdir(parents=True)
    for number, path in enumerate((logs / "compile.log", tmp_path / "order.json", tmp_path / "log.txt")):
        path.write_text(path.name, encoding="utf-8")
        os.utime(path, (1e9 + number, 1e9 + number))
    assert order_run.log_tail(tmp_path) == "log.txt"
    os.utime(logs / "compile.log")
    assert order_run.log_tail(tmp_path) == "compile.log", "a step's own log is nearer to the cause"
