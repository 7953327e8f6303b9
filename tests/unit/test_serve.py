"""Pages that this computer serves: who may look, what is escaped, and a build that is watched by many."""

from __future__ import annotations

import asyncio
import json
import operator
import os
import socket
import subprocess
import threading
import time
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from rekindle.audit.answer import Audit
from rekindle.build.progress.outputs import RunningProgram
from rekindle.build.progress.watch import Now
from rekindle.core import codec, web_server
from rekindle.core.errors import StepFailed
from rekindle.core.findings import Finding, State
from rekindle.formats import ninja_log
from rekindle.knowledge import tables
from rekindle.machine.python.environment import find as find_environment
from rekindle.machine.snapshot import load
from rekindle.web import answers, live, report, serve
from rekindle.web.guard import Bind, Guard, bind
from rekindle.web.timeline import Growing
from support.artefacts import unverified
from support.command import rekindle_command, rekindle_program

MACHINES = Path(__file__).parents[1] / "machines"
HOSTILE = '<script>alert("x")</script>'


def get(app: Any, path: str = "/", *, method: str = "GET", host: str = "127.0.0.1:8035", **headers: str) -> Any:
    """One request, without a network: status, headers, body."""
    sent: list[dict[str, Any]] = []
    query = path.partition("?")[2]
    scope = {
        "type": "http",
        "method": method,
        "path": path.partition("?")[0],
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(b"host", host.encode()), *((k.lower().encode(), v.encode()) for k, v in headers.items())],
        "http_version": "1.1",
        "scheme": "http",
        "server": ("127.0.0.1", 8035),
        "client": ("127.0.0.1", 5),
        "root_path": "",
    }

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(3600)
        return {}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    body = b"".join(each.get("body", b"") for each in sent if each["type"] == "http.response.body")
    return sent[0]["status"], dict(sent[0]["headers"]), body.decode()


async def _hello(scope: Any, receive: Any, send: Any) -> None:
    del scope, receive
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


@pytest.mark.parametrize(
    ("host", "status"),
    [("127.0.0.1:8035", 200), ("localhost", 200), ("[::1]:8035", 200), ("evil.example", 421), ("", 421)],
)
def test_a_name_that_is_not_ours_is_refused(host: str, status: int) -> None:
    """DNS rebinding: a stranger's name that resolves to 127.0.0.1 gets nothing."""
    assert get(Guard(_hello, Bind()), host=host)[0] == status
    assert get(Guard(_hello, Bind()), host="192.168.1.5")[0] == 421


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_changed(method: str) -> None:
    assert get(Guard(_hello, Bind()), method=method)[0] == 405


def test_elsewhere_a_token_is_needed() -> None:
    app = Guard(_hello, Bind(host="0.0.0.0", token="s3cret"))
    assert get(app, host="192.168.1.5")[0] == 401
    assert get(app, "/?token=wrong", host="192.168.1.5")[0] == 401
    status, headers, _ = get(app, "/?token=s3cret", host="192.168.1.5")
    assert status == 303 and b"HttpOnly; SameSite=Strict" in headers[b"set-cookie"]
    assert get(app, host="192.168.1.5", cookie="rekindle_token=s3cret")[0] == 200
    assert get(app, host="192.168.1.5", authorization="Bearer s3cret")[0] == 200
    assert get(app, host="evil.example", cookie="rekindle_token=s3cret")[0] == 421


def test_bound_to_loopback_there_is_no_token_and_elsewhere_there_is() -> None:
    place, opened = bind("127.0.0.1", 0)
    assert place.loopback and place.token is None and place.port > 0
    opened.close()
    place, opened = bind("0.0.0.0", 0)
    assert place.token and place.token in place.address
    opened.close()


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        seen = rekindle_command("serve", "--port", str(taken.getsockname()[1]))
    assert seen.code != 0 and "cannot listen" in seen.err and "hint:" in seen.err


def test_a_server_that_a_fault_ends_is_started_again_and_the_pages_say_so() -> None:
    if os.name == "nt":
        unverified("under Wine nobody takes over what a killed process was asked; not tried on a real Windows")
    words, environ = rekindle_program("serve", "--port", "0", "--machine", str(MACHINES / "k40c-windows.json"))

    def ask(path: str) -> str:
        with urllib.request.urlopen(address + path, timeout=600) as answer:
            return str(answer.read().decode("utf-8"))

    def worker() -> psutil.Process:
        (found,) = (each for each in psutil.Process(server.pid).children() if "spawn_main" in " ".join(each.cmdline()))
        return found

    with subprocess.Popen(words, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None and server.stderr is not None
        try:
            address = server.stdout.readline().strip().rstrip("/")
            assert json.loads(ask("/answer?gpu=K80&os=linux"))["falls"] == 0
            assert 'id="falls" role="status" hidden' in ask("/index.html")
            worker().kill()
            assert json.loads(ask("/answer?gpu=K80&os=linux"))["falls"] == 1
            assert 'id="falls" role="status">The server was ended by a fault' in ask("/index.html")
            second = worker()
        finally:
            server.kill()
        assert server.stderr.readline() == "press Ctrl+C to end\n"
        assert "and is started again" in server.stderr.readline()
        second.wait(60)


def test_a_server_that_a_service_manager_ends_has_ended() -> None:
    """What `kill`, systemd or a runner sends comes to the first process alone, and the pages are another's."""
    if os.name == "nt":
        unverified("Windows has no such signal")
    words, environ = rekindle_program("serve", "--port", "0", "--machine", str(MACHINES / "k40c-windows.json"))
    with subprocess.Popen(words, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        try:
            address = server.stdout.readline().strip()
            urllib.request.urlopen(address, timeout=600).close()
            started = psutil.Process(server.pid).children(recursive=True)
            server.terminate()
            assert server.wait(120) in (0, 130)
        finally:
            server.kill()
    assert started and psutil.wait_procs(started, 60)[1] == []


def test_a_server_that_keeps_falling_is_given_up() -> None:
    said: list[str] = []
    web_server.kept_up(partial(operator.truediv, 1), said.append)  # 1 / 0, then 1 / 1
    assert said == ["the server ended with exit code 1 and is started again"]
    with pytest.raises(StepFailed, match="ended 6 times"):
        web_server.kept_up(partial(operator.truediv, "x"), said.append)
    assert len(said) == 1 + 5


def test_what_a_server_keeps_of_questions_has_an_end() -> None:
    """Each answer weighs tens of kilobytes, and whoever types asks another question with every letter."""
    asked = [each for each in tables._CACHES if "Situation" in str(each.__wrapped__.__annotations__)]
    assert [each.cache_info().maxsize for each in asked] == [128, 128]


def test_every_answer_has_a_policy() -> None:
    _, headers, _ = get(Guard(_hello, Bind()))
    assert b"default-src 'none'" in headers[b"content-security-policy"]
    assert headers[b"x-content-type-options"] == b"nosniff"


@pytest.fixture(scope="module")
def pages() -> serve.Pages:
    return serve.Pages(load(MACHINES / "k40c-windows.json"), Path("nowhere"))


def test_this_computer_is_filled_in(pages: serve.Pages) -> None:
    app = serve.application(pages, Bind())
    status, _, text = get(app)
    assert status == 200 and "Tesla K40c" in text and "Doctor" in text
    data = get(app, "/here.js")[2]
    here = json.loads(data.removeprefix("REKINDLE.served(").removesuffix(");\n"))
    assert (here["gpu"], here["os"]) == ("Tesla K40c", "windows")
    assert get(app, "/doctor.html")[0] == get(app, "/shelf.html")[0] == get(app, "/index.html")[0] == 200
    assert get(app, "/gpu/tesla-k80.html")[0] == get(app, "/sm/3.7.html")[0] == get(app, "/causes.html")[0] == 200
    assert get(app, "/gpu/nothing.html")[0] == get(app, "/pyproject.toml")[0] == get(app, "/../x")[0] == 404


def test_an_audit_is_of_this_computer_only(pages: serve.Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a recorded computer nothing is shown rather than the modules of the one that serves."""
    assert "does not hold them" in pages.audit()
    found = Audit(
        environment=find_environment(None), torch=None, cards=(), driver=None, examined=7, modules=(),
        findings=(Finding(id="x", state=State.FAIL, found=HOSTILE),), steps=(), state=State.FAIL,
    )  # fmt: skip
    monkeypatch.setattr(serve.api, "audit", lambda: found)
    text = serve.Pages(pages.machine, here=True).audit()
    assert "checked 7 modules" in text and "<script>alert" not in text and "FAIL" in text


def test_the_served_picker_answers_as_the_command_line_does(pages: serve.Pages) -> None:
    app = serve.application(pages, Bind())
    found = json.loads(get(app, "/answer?gpu=k80&os=linux&python=3.11&driver=")[2])
    expected = answers.shown(answers.verdict("k80", "linux", "3.11", None))
    assert found["name"] == "Tesla K80"
    assert found["shown"] == json.loads(codec.to_json(expected, indent=0))
    refused = json.loads(get(app, "/answer?gpu=%3Cscript%3E&os=linux&python=&driver=")[2])
    assert "no GPU called" in refused["refusal"] and refused["shown"] is None


def test_a_late_viewer_gets_the_whole_build_and_the_end(tmp_path: Path) -> None:
    build = watched(tmp_path, 3)
    first = build.state(0)
    assert [bar.name for bar in first.bars] == ["f0.cpp", "f1.cpp", "f2.cpp"] and first.ended == ""
    log(tmp_path, 5)
    build._read_at = 0.0
    assert [bar.name for bar in build.state(3).bars] == ["f3.cpp", "f4.cpp"]
    build.end("Finished")
    assert build.state(5).ended == "Finished"


def test_a_hostile_line_of_a_log_reaches_the_page_as_text(tmp_path: Path) -> None:
    build = watched(tmp_path, 1)
    job = RunningProgram(output=f"{HOSTILE}.o", seconds=1.0, memory=1)
    build.now(Now(step="compile", number=1, of=2, seconds=1.0, last_line=HOSTILE, running=(job,)))
    app = live.application(build, Bind())
    status, headers, text = get(app)
    assert status == 200 and "<script>alert" not in text and b"unsafe" not in headers[b"content-security-policy"]
    assert build.state(0).last_line == HOSTILE
    script = (Path(live.__file__).parent / "assets" / "live.js").read_text(encoding="utf-8")
    assert "innerHTML" not in script and "document.write" not in script and "insertAdjacent" not in script


def test_ten_viewers_and_a_slow_one(tmp_path: Path) -> None:
    """Nine read to the end, one never reads: the build goes on and the nine get all of it."""
    build = watched(tmp_path, 40)
    place, opened = bind("127.0.0.1", 0)
    server = live.LiveServer(build, place, opened)
    server.start()
    slow = socket.create_connection(("127.0.0.1", place.port))
    slow.sendall(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    heard: list[list[dict[str, Any]]] = [[] for _ in range(9)]
    viewers = [threading.Thread(target=_listen, args=(place.port, each)) for each in heard]
    for viewer in viewers:
        viewer.start()
    for moment in range(3):
        build.now(Now(step="compile", number=1, of=2, seconds=float(moment), done=moment, total=3))
        time.sleep(0.2)
    log(tmp_path, 60)
    time.sleep(1.2)
    build.end("Finished")
    for viewer in viewers:
        viewer.join(timeout=120)
    assert all(sum(len(state["bars"]) for state in each) == 60 for each in heard)
    assert all(each[-1]["ended"] == "Finished" for each in heard)
    slow.close()
    server.stop("Finished", linger=0)


def _listen(port: int, heard: list[dict[str, Any]]) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=120) as line:
        line.sendall(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        data = b""
        while True:
            piece = line.recv(65536)
            data += piece
            if not piece or b'"ended":"Finished"' in data:
                break
    heard.extend(json.loads(part.partition("\n")[0]) for part in data.decode().split("data: ")[1:])


def watched(folder: Path, count: int) -> live.LiveBuild:
    log(folder, count)
    (folder / "journal.jsonl").write_text("", encoding="utf-8")
    return live.LiveBuild(folder, "A build")


def log(folder: Path, count: int) -> None:
    lines = [f"{i * 10}\t{i * 10 + 25}\t0\tf{i}.cpp.o\tc{i}" for i in range(count)]
    (folder / ".ninja_log").write_text("# ninja log v6\n" + "\n".join(lines) + "\n", encoding="utf-8")


def test_a_growing_timeline_never_moves_what_is_drawn() -> None:
    rows = [(0, 50, "a"), (0, 20, "b"), (20, 60, "c"), (5, 10, "d"), (10, 30, "e")]
    data = "# ninja log v6\n" + "".join(
        f"{s}\t{e}\t0\t{n}.o\t{n}\n" for s, e, n in sorted(rows[:3], key=lambda r: r[1])
    )
    growing = Growing()
    growing.take(ninja_log.parse(data.encode()))
    before = list(growing.bars)
    data += "".join(f"{s}\t{e}\t0\t{n}.o\t{n}\n" for s, e, n in rows[3:])
    growing.take(ninja_log.parse(data.encode()))
    assert growing.bars[: len(before)] == before and len(growing.bars) == 5
    for one in growing.bars:
        for other in growing.bars:
            if one is not other and one.slot == other.slot:
                assert one.start + one.seconds <= other.start + 1e-9 or other.start + other.seconds <= one.start + 1e-9


def test_warnings_of_the_build_are_told_from_those_of_files(tmp_path: Path) -> None:
    log = tmp_path / "compile.log"
    log.write_text(
        "nvcc warning : The 'compute_35' architecture is deprecated\n"
        "nvcc warning : The 'compute_35' architecture is deprecated\n"
        "CMake Warning at CMakeLists.txt:12 (message):\n  NCCL is off <script>\n\n"
        "/x/a.cpp:3:1: warning: unused variable [-Wunused-variable]\n"
        "/usr/bin/ld: warning: libcuda.so.1, needed by x, not found\n"
        "3 warnings generated.\n",
        encoding="utf-8",
    )
    found = report.read_warnings([log])
    assert [(each.tool, each.text, each.count) for each in found.found] == [
        ("nvcc", "The 'compute_35' architecture is deprecated", 2),
        ("CMake Warning", "NCCL is off <script>", 1),
        ("ld", "libcuda.so.1, needed by x, not found", 1),
    ]
    assert found.files == {"-Wunused-variable": 1}
