"""The governor: hands out job tokens, hears every gate, and lets compilers in as memory allows.

One thread serves all gates. What they say, line by line, and what they hear:

    start PID OBJECT          go            no WHY
    end CODE KILLED PEAK_KB   done [WORDS]  again        (`done` and `again` only when the code is not 0)

Ninja looks for new tokens only when one of its jobs ends. So that a core is not idle until then, it has a few more
tokens than there are cores: their compiles wait at the gate, and one that has room goes as soon as another has none.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from rekindle.build.governor.endpoint import (
    JobServer,
    any_below,
    held_by,
    largest_below,
    listening,
    own_user,
    peer_of,
    plain_number,
)
from rekindle.build.governor.memory import Compiling, Expectation, Sample, Watch, choose
from rekindle.build.governor.record import Compile, GovernorUse, Shown, Standing
from rekindle.core import console, lines
from rekindle.core.errors import NotWritable

VARIABLE = "REKINDLE_GATE"
_UNBOUNDED = 1 << 62
_SIGN_OF_LIFE = 10.0
_LONGEST_LINE = 64 * 1024
_LONGEST_NAME = 4096
_MOST_GATES = 1000
"""More clients than any build has; the rest are sent away."""
_IDLE = 15.0
"""Seconds after which a client that waits for nothing and runs nothing gives its place to one that does."""
_SOON = 0.01
"""Seconds between two looks at what every running compile holds: it costs about a millisecond."""


_GROWTH = 256 * 1024**2
"""What a compiler may take between two looks at the memory, half a second apart, and no more than that."""


class Gate(Compiling, kw_only=True):
    """One gate that has connected."""

    connection: socket.socket
    buffer: bytes = b""
    trusted: bool = False
    object: str = ""
    pid: int = 0
    phase: str = "new"
    attempts: int = 0
    short_since: float | None = None
    clock: float = 0.0
    killed_before: int | None = None
    lowest: int = _UNBOUNDED
    """The least memory that was free while it ran."""
    last_sign: float = 0.0
    taken: bool = False
    """We have ended it ourselves, because memory was running out."""
    returns: int = 0


class Governor:
    """Lets at most `jobs` compiles run at a time. `tokens` is for a Ninja that takes them."""

    def __init__(
        self,
        jobs: int,
        *,
        expectation: Expectation | None = None,
        compiles: Path | None = None,
        tokens: bool = True,
        measured: bool = True,
        watch: Watch | None = None,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.jobs = jobs
        self.use = GovernorUse(jobs=jobs)
        self._expectation = expectation or Expectation()
        self._compiles = compiles
        self._measured = measured
        self._watch = watch or Watch()
        self._tell = tell
        self._sample = self._watch.sample()
        self._sampled = time.monotonic()
        self._looked = 0.0
        self._gates: dict[int, Gate] = {}
        self._count = 0
        self._short = 0
        self._soon = self._tight = False
        self._unfit: dict[str, str] = {}
        self._lock = threading.Lock()
        self._spare = 0 if jobs == 1 else min(8, 2 * jobs)
        self._server = JobServer(jobs + self._spare, most=8 * jobs + self._spare) if tokens else None
        self._most = 8 * jobs + self._spare
        self._secret = secrets.token_hex(16)
        self._listening, self._folder = listening()
        self._wake, self._woken = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listening, selectors.EVENT_READ, None)
        self._selector.register(self._woken, selectors.EVENT_READ, None)
        self._closing = False
        self._thread = threading.Thread(target=self._serve, name="governor", daemon=True)

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """`environ` for the Ninja that is governed."""
        kept = self._server.environment(environ) if self._server else dict(environ)
        if self._folder is not None:
            kept[VARIABLE] = str(self._folder / "gate")
        else:
            kept[VARIABLE] = f"{self._listening.getsockname()[1]} {self._secret}"
        return kept

    def standing(self) -> Standing:
        """For whoever shows it; safe from any thread."""
        with self._lock:
            gates = sorted(self._gates.values(), key=lambda gate: gate.number)
            self._sample, self._sampled = self._watch.sample(), time.monotonic()
            running = tuple(_shown(gate, held_by(gate.pid)) for gate in gates if gate.phase == "running")
            waiting = tuple(_shown(gate, None) for gate in gates if gate.phase == "waiting")
            return Standing(
                jobs=self.jobs,
                running=running,
                waiting=waiting,
                short=self._short,
                available=self._sample.available,
                total=self._sample.total,
            )

    def close(self) -> None:
        self._closing = True
        with contextlib.suppress(OSError):
            self._wake.send(b".")
        if self._thread.is_alive():
            self._thread.join(timeout=10)
        for each in (self._listening, self._wake, self._woken, *(gate.connection for gate in self._gates.values())):
            with contextlib.suppress(OSError):
                each.close()
        self._selector.close()
        if self._server:
            self._server.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Governor:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def _serve(self) -> None:
        while True:
            # What a gate said before it ended is heard to the end, also when we are about to close.
            found = self._selector.select(0 if self._closing else self._patience())
            found = [(key, mask) for key, mask in found if key.fileobj is not self._woken]
            if self._closing and not found:
                return
            for key, _ in found:
                with self._lock:
                    if key.fileobj is self._listening:
                        self._accept()
                    elif key.data is not None:
                        self._hear(key.data)
            with self._lock:
                self._admit()
                self._signs_of_life()
                if sys.platform == "win32":
                    self._note_lowest()
                else:
                    self._take_back()

    def _patience(self) -> float:
        if self._soon:
            return _SOON
        if self._tight:
            return 0.05
        if self._short:
            return 0.1
        return 0.5 if self._gates else 2.0

    def _accept(self) -> None:
        try:
            connection, _ = self._listening.accept()
        except OSError:
            return
        if len(self._gates) >= _MOST_GATES:
            self._send_away_idle(time.monotonic())
        peer = peer_of(connection)
        if len(self._gates) >= _MOST_GATES or (peer is not None and peer[1] != own_user()):
            connection.close()
            return
        connection.setblocking(False)
        if self._folder is None:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._count += 1
        gate = Gate(number=self._count, need=0, connection=connection, trusted=self._folder is not None)
        gate.pid = peer[0] if peer is not None else 0
        gate.arrived = time.monotonic()
        self._gates[gate.number] = gate
        self._selector.register(connection, selectors.EVENT_READ, gate)
        # It speaks at once: most often its first line is there.
        self._hear(gate)

    def _hear(self, gate: Gate) -> None:
        try:
            data = gate.connection.recv(65536)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self._drop(gate)
            return
        *lines, gate.buffer = (gate.buffer + data).split(b"\n")
        for line in lines:
            self._take_in(gate, line.decode("utf-8", "replace").strip("\r"))
        if len(gate.buffer) > _LONGEST_LINE:
            self._drop(gate)

    def _take_in(self, gate: Gate, line: str) -> None:
        if not gate.trusted:
            gate.trusted = secrets.compare_digest(line, self._secret)
            if not gate.trusted:
                self._drop(gate)
            return
        word, _, rest = line.partition(" ")
        if word == "start" and gate.phase == "new":
            pid, _, name = rest.partition(" ")
            # Whom the kernel names is believed before what the client says: what runs below may be ended.
            gate.pid = gate.pid or plain_number(pid) or 0
            gate.object = console.clean(name.replace("\\", "/"))[:_LONGEST_NAME]
            self._arrive(gate)
        elif word == "end" and gate.phase == "running":
            numbers = [plain_number(each) for each in rest.split()]
            if len(numbers) == 3 and numbers[0] is not None and numbers[1] is not None and numbers[2] is not None:
                self._ended(gate, numbers[0], numbers[1] == 1, max(0, numbers[2]))

    def _arrive(self, gate: Gate) -> None:
        if gate.object in self._unfit:
            self._send(gate, f"no {self._unfit[gate.object]}")
            return
        gate.need = self._expectation.of(gate.object)
        gate.arrived = gate.last_sign = time.monotonic()
        gate.clock = time.time()
        gate.phase = "waiting"

    def _ended(self, gate: Gate, code: int, killed: bool, peak_kb: int) -> None:
        seconds = time.monotonic() - gate.began
        peak_kb = peak_kb if self._measured else 0
        taken, gate.taken = gate.taken and code != 0, False
        killed = code != 0 and (taken or killed or self._killed_since(gate))
        gate.phase = "done"
        self._expectation.learn(gate.object, peak_kb * 1024, killed=killed)
        if taken:
            self.use.taken_back += 1
            gate.attempts -= 1
            gate.returns += 1
            gate.alone = gate.returns > 1
            self._wait_again(gate)
            return
        if killed and gate.attempts == 1:
            self.use.retries += 1
            self._tell(
                f"{gate.object}: killed for memory at {console.memory(peak_kb * 1024)}; it is compiled again, alone"
            )
            gate.alone = True
            self._wait_again(gate)
            return
        self._write_down(gate, code, seconds, peak_kb)
        if killed:
            words = self._too_much(gate.object, peak_kb * 1024)
            self._unfit[gate.object] = words
            self.use.unfit += (words,)
            self._send(gate, f"done {words}")
        elif code:
            self._send(gate, "done")
        # It has nothing more to say, and the next look at it is saved.
        self._drop(gate)

    def _wait_again(self, gate: Gate) -> None:
        gate.need = max(gate.need, self._expectation.of(gate.object))
        gate.phase, gate.arrived, gate.clock = "waiting", time.monotonic(), time.time()
        gate.last_sign = gate.arrived
        self._send(gate, "again")

    def _killed_since(self, gate: Gate) -> bool:
        now = self._watch.sample()
        if now.killed is not None and gate.killed_before is not None:
            return now.killed > gate.killed_before
        # Windows kills nothing: a compiler that gets no memory ends by itself. Was there none?
        return sys.platform == "win32" and gate.lowest < (now.total or 0) // 32

    def _note_lowest(self) -> None:
        running = [gate for gate in self._gates.values() if gate.phase == "running"]
        if not running:
            return
        self._sample, self._sampled = self._watch.sample(), time.monotonic()
        for gate in running:
            gate.lowest = min(gate.lowest, _UNBOUNDED if self._sample.available is None else self._sample.available)

    def _too_much(self, name: str, peak: int) -> str:
        total = self._sample.total
        have = f", and {console.memory(total)} is all that this build may have" if total else ""
        return f"rekindle: {name} was killed for memory, also alone: it needs more than {console.memory(peak)}{have}"

    def _write_down(self, gate: Gate, code: int, seconds: float, peak_kb: int) -> None:
        use = self.use
        use.compiles += 1
        if peak_kb > use.peak_kb:
            use.peak_kb, use.largest = peak_kb, gate.object
        if self._compiles is None:
            return
        one = Compile(
            object=gate.object,
            start=round(gate.clock, 3),
            seconds=round(seconds, 3),
            peak_kb=peak_kb,
            code=code,
            retried=gate.attempts > 1,
        )
        # A full disk stops the build soon enough, and with better words.
        with contextlib.suppress(NotWritable):
            lines.append(self._compiles, one, hint="free some space", settled=False)

    def _admit(self) -> None:
        waiting = [gate for gate in self._gates.values() if gate.phase == "waiting"]
        self._soon = False
        if waiting:
            self._choose(waiting)
        self._short = sum(gate.phase == "waiting" and gate.short_since is not None for gate in waiting)
        if self._server:
            self._set_tokens(self._server)

    def _choose(self, waiting: list[Gate]) -> None:
        now = time.monotonic()
        running = [gate for gate in self._gates.values() if gate.phase == "running"]
        if len(running) >= self.jobs and now - min(gate.arrived for gate in waiting) > _IDLE:
            self._send_away_idle(now)
            running = [gate for gate in self._gates.values() if gate.phase == "running"]
        if len(running) >= self.jobs:
            return
        if now - self._sampled > 1.0:
            self._sample, self._sampled = self._watch.sample(), now
        # First the careful sum, which counts twice what the running ones hold already. It costs nothing.
        free = _free(self._sample)
        choice = choose(waiting, running, jobs=self.jobs, room=free - sum(gate.need for gate in running), capacity=free)
        if choice.short and running and now - self._looked < _SOON:
            self._soon = True
        elif choice.short and running:
            self._looked = self._sampled = now
            self._sample = self._watch.sample()
            held = {gate.number: held_by(gate.pid) or 0 for gate in running}
            capacity = _free(self._sample) + sum(held.values())
            room = capacity - sum(max(gate.need, held[gate.number]) for gate in running)
            choice = choose(waiting, running, jobs=self.jobs, room=room, capacity=capacity)
        for number in choice.short:
            if self._gates[number].short_since is None:
                self._gates[number].short_since = now
        for number in choice.start:
            self._let_in(self._gates[number], now)

    def _send_away_idle(self, now: float) -> None:
        """A gate that runs has its compiler below it; one that has none is no gate of ours, or has lost it."""
        for gate in list(self._gates.values()):
            since = gate.began if gate.phase == "running" else gate.arrived
            if gate.phase == "waiting" or now - since < _IDLE:
                continue
            if gate.phase != "running" or not any_below(gate.pid):
                self._drop(gate)

    def _take_back(self) -> None:
        """Memory is about to run out while several compile: the youngest has to wait its turn after all.

        Better one that has just begun than whichever the kernel takes, or a machine that does nothing but page.
        """
        running = [gate for gate in self._gates.values() if gate.phase == "running"]
        now = time.monotonic()
        if len(running) > 1 and now - self._sampled > (0.04 if self._tight else 0.45):
            self._sample, self._sampled = self._watch.sample(), now
        self._tight = len(running) > 1 and _free(self._sample) < len(running) * _GROWTH
        if not self._tight:
            return
        if _free(self._sample) > 0 or any(gate.taken for gate in running):
            return
        youngest = max(running, key=lambda gate: gate.began)
        victim = largest_below(youngest.pid)
        if victim is not None and sys.platform != "win32":
            youngest.taken = True
            with contextlib.suppress(OSError):
                os.kill(victim, signal.SIGKILL)

    def _let_in(self, gate: Gate, now: float) -> None:
        if gate.short_since is not None:
            self.use.waits += 1
            self.use.waited = round(self.use.waited + now - gate.short_since, 3)
            gate.short_since = None
        gate.attempts += 1
        gate.phase, gate.began, gate.clock = "running", now, time.time()
        gate.killed_before, gate.lowest = self._sample.killed, _UNBOUNDED
        self._send(gate, "go")

    def _set_tokens(self, server: JobServer) -> None:
        """One more for each that waits for memory; taken back when it goes, as soon as Ninja leaves one."""
        want = min(self.jobs + self._spare + self._short, self._most) if self.jobs > 1 else 1
        while server.jobs < want:
            server.give()
        while server.jobs > want and server.take():
            pass

    def _signs_of_life(self) -> None:
        now = time.monotonic()
        for gate in list(self._gates.values()):
            if gate.phase == "waiting" and now - gate.last_sign > _SIGN_OF_LIFE:
                gate.last_sign = now
                self._send(gate, ".")

    def _send(self, gate: Gate, line: str) -> None:
        try:
            gate.connection.sendall(line.replace("\n", " ").encode("utf-8", "replace") + b"\n")
        except OSError:
            self._drop(gate)

    def _drop(self, gate: Gate) -> None:
        if self._gates.pop(gate.number, None) is not None:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(gate.connection)
            gate.connection.close()


def _free(sample: Sample) -> int:
    """What may be given away: a little is kept back for everybody else. Unknown: memory does not decide."""
    if sample.available is None:
        return _UNBOUNDED
    kept = max(32 * 1024**2, min((sample.total or 0) // 25, 512 * 1024**2))
    return sample.available - kept


def _shown(gate: Gate, held: int | None) -> Shown:
    return Shown(object=gate.object, since=gate.clock, expected=gate.need, held=held)
