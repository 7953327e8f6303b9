"""The governor against others: another user cannot reach it, and no client stops the compiles of the rest."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rekindle.build.configure.request import BuildRequest, Compiler
from rekindle.build.governor import server
from rekindle.build.governor.governor import make_gate
from rekindle.build.governor.server import VARIABLE, Governor
from support.artefacts import unverified

if sys.platform == "win32":
    pytest.skip("UNVERIFIED: Windows has a loopback socket with a secret", allow_module_level=True)


@pytest.fixture
def governor() -> Iterator[Governor]:
    with Governor(2) as made:
        yield made


def place(governor: Governor) -> Path:
    return Path(governor.environment({})[VARIABLE])


def client(governor: Governor) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.settimeout(10)
    try:
        made.connect(str(place(governor)))
    except OSError:
        made.close()
        raise
    return made


def compiles(governor: Governor) -> bool:
    """A real gate with a real program behind it is let in and comes to its end."""
    compiler = Compiler(kind="gcc", cxx="g++", c="cc", cuda_host="g++")
    request = BuildRequest(source=".", system="linux", arch="x86_64", python=sys.executable, compiler=compiler)
    if not shutil.which("cc"):
        unverified("no C compiler is here")
    with tempfile.TemporaryDirectory() as folder:
        made = make_gate(Path(folder), request, os.environ)
        assert made is not None
        words = [made, "true", "-o", "a.cpp.o"]
        return subprocess.run(words, env=governor.environment(os.environ), timeout=120, check=False).returncode == 0


def test_only_this_user_can_enter(governor: Governor) -> None:
    gate = place(governor)
    assert stat.S_IMODE(gate.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(gate.stat().st_mode) == 0o600
    tokens = Path(governor.environment({})["MAKEFLAGS"].rpartition("fifo:")[2])
    assert stat.S_IMODE(tokens.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(tokens.stat().st_mode) == 0o600


CONNECT = """
import os, socket, sys
os.setgid(65534); os.setuid(65534)
made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
made.settimeout(5)
made.connect(sys.argv[1])
made.sendall(b"start 1 a.cpp.o\\n")
print(repr(made.recv(10)))
"""


def test_another_user_is_shut_out_twice(governor: Governor) -> None:
    if os.geteuid() != 0:
        pytest.skip("UNVERIFIED: only root can become another user")
    words = [sys.executable, "-c", CONNECT, str(place(governor))]
    first = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert "PermissionError" in first.stderr
    # The folder opened by someone's mistake: the governor asks the kernel who it is.
    place(governor).parent.chmod(0o755)
    place(governor).chmod(0o777)
    second = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert "go" not in second.stdout, second.stdout
    assert compiles(governor)


RUBBISH = [
    b"\n" * 1000,
    b"\0" * 5000 + b"\n",
    b"\xff\xfe\xfd\n",
    b"start\n",
    "start \u00b2 a.o\n".encode(),
    b"start -1 a.o\n",
    b"start 99999999999999999999999999999999 a.o\n",
    b"start 1 " + b"x" * 60000 + b"\n",
    b"start 1 \x1b[2J\x1b]0;title\x07.o\n",
    b"start 1 a.o\nend 0 0 99999999999999999999999999999999\n",
    "start 1 a.o\nend \u00b2 0 \u00b2\n".encode(),
    b"start 1 a.o\nend --1 0 0\nend - - -\nend 1 1 -5\n",
    b"end 0 0 0\n",
    b"x" * 200_000,
]


@pytest.mark.long
@pytest.mark.parametrize("number", range(len(RUBBISH)))
def test_rubbish_stops_nothing(governor: Governor, number: int) -> None:
    with client(governor) as one:
        with contextlib.suppress(OSError):
            one.sendall(RUBBISH[number])
        time.sleep(0.1)
        assert compiles(governor)
    assert compiles(governor)


def test_a_client_that_names_another_process_is_not_believed(governor: Governor) -> None:
    """What runs below the process that it names may be killed when memory is short."""
    with client(governor) as one:
        one.sendall(b"start 1 a.cpp.o\n")
        assert one.recv(10) == b"go\n"
        assert [gate.pid for gate in governor._gates.values()] == [os.getpid()]


def test_places_that_are_held_and_not_used_are_given_to_others(
    governor: Governor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_IDLE", 0.5)
    # A process without a child: no gate is one, since its compiler runs below it.
    hog = "import socket, sys, time\nkept = []\nfor n in range(6):\n s = socket.socket(socket.AF_UNIX)\n"
    hog += " s.connect(sys.argv[1]); s.sendall(b'start 1 a.cpp.o\\n'); kept.append(s)\nprint('held', flush=True)\n"
    hog += "time.sleep(60)\n"
    held = subprocess.Popen([sys.executable, "-c", hog, str(place(governor))], stdout=subprocess.PIPE, text=True)
    try:
        assert held.stdout is not None and held.stdout.readline() == "held\n"
        time.sleep(0.2)
        assert compiles(governor)
    finally:
        held.kill()
        held.communicate()


def test_more_clients_than_there_is_room_for(governor: Governor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_MOST_GATES", 50)
    monkeypatch.setattr(server, "_IDLE", 0.5)
    kept = []
    for _ in range(200):
        try:
            kept.append(client(governor))
        except OSError:
            break
    assert compiles(governor)
    for one in kept:
        one.close()


def test_a_client_that_takes_all_tokens_stops_no_build(governor: Governor, tmp_path: Path) -> None:
    from support.ninjas import ninja_with_tokens

    tokens = Path(governor.environment({})["MAKEFLAGS"].rpartition("fifo:")[2])
    taken = os.open(tokens, os.O_RDWR | os.O_NONBLOCK)
    try:
        while True:
            try:
                os.read(taken, 100)
            except BlockingIOError:
                break
        lines = ["rule r", "  command = touch $out", *(f"build o{n}: r" for n in range(6))]
        (tmp_path / "build.ninja").write_text("\n".join([*lines, ""]), encoding="utf-8")
        environ = governor.environment({**os.environ, "PATH": f"{ninja_with_tokens()}:{os.environ['PATH']}"})
        done = subprocess.run(["ninja"], cwd=tmp_path, env=environ, timeout=60, check=False, capture_output=True)
        assert done.returncode == 0, done.stdout
    finally:
        os.close(taken)
