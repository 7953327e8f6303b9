"""The gate in Python, for where gate.c could not be compiled. Run alone, with `-ISE`: it imports next to nothing."""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket

PATIENCE = 120


def main(words: list[str]) -> int:
    if not words:
        sys.stderr.write("gate: names no compiler\n")
        return 2
    governor = find_governor()
    if governor is None and sys.platform != "win32":
        try:
            os.execvp(words[0], words)
        except OSError as error:
            return unstarted(words, error)[0]
    say(governor, f"start {os.getpid()} {object_of(words)}\n")
    while True:
        said = hear(governor, ("go", "no "))
        if said.startswith("no "):
            sys.stderr.write(said[3:] + "\n")
            return 1
        code, killed, peak = run(words)
        say(governor, f"end {code} {killed} {peak}\n")
        said = hear(governor, ("again", "done")) if code else ""
        if said != "again":
            break
    if said[5:]:
        sys.stderr.write(said[5:] + "\n")
    if code < 0:
        if -code != 9:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def find_governor() -> socket | None:
    where = os.environ.get("REKINDLE_GATE")
    if not where:
        return None
    import _socket

    try:
        if sys.platform != "win32":
            governor = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
            governor.connect(where)
        else:
            port, _, secret = where.partition(" ")
            governor = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
            governor.connect(("127.0.0.1", int(port)))
            governor.sendall(secret.encode() + b"\n")
    except (OSError, ValueError):
        return None
    governor.settimeout(PATIENCE)
    return governor


def object_of(words: list[str]) -> str:
    found = ""
    for number, word in enumerate(words):
        if word == "-o" and number + 1 < len(words):
            found = words[number + 1]
        elif word[:3] in ("/Fo", "-Fo") and word[3:]:
            found = word[3:]
    return found


def say(governor: socket | None, line: str) -> None:
    if governor is not None:
        try:
            governor.sendall(line.encode("utf-8", "surrogateescape"))
        except OSError:
            return


def hear(governor: socket | None, awaited: tuple[str, ...]) -> str:
    """The first line that begins with one of these; without a governor nothing, which means go on."""
    line = b""
    while governor is not None:
        try:
            letter = governor.recv(1)
        except OSError:
            break
        if not letter:
            break
        if letter != b"\n":
            line += letter
            continue
        text, line = line.decode("utf-8", "replace"), b""
        if text.startswith(awaited):
            return text
    return ""


def run(words: list[str]) -> tuple[int, int, int]:
    """Its exit code, whether it was killed, and the most memory it held, in KiB."""
    if sys.platform == "win32":
        import subprocess

        try:
            return subprocess.call(words), 0, 0
        except OSError as error:
            return unstarted(words, error)
    else:
        try:
            child = os.posix_spawnp(words[0], words, os.environ)
        except OSError as error:
            return unstarted(words, error)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, frame: os.kill(child, number))
        _, status, usage = os.wait4(child, 0)
        code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        return code, int(code == -9), usage.ru_maxrss


def unstarted(words: list[str], error: OSError) -> tuple[int, int, int]:
    """As a shell has it: 127 for a program that is not there, 126 for one that cannot be run."""
    sys.stderr.write(f"{words[0]}: {error.strerror}\n")
    return (127 if isinstance(error, FileNotFoundError) else 126), 0, 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
