"""One order in one folder: the files it needs laid out, the commands run one after another, the result collected.

Every command is `rekindle` itself in a process of its own, so a crash of a compiler or of a build takes no worker with
it, and what was done is in the build's own journal: the same order again in the same folder goes on where it stopped.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rekindle.build.governor.memory import SHARE
from rekindle.build.run import journal as build_journal
from rekindle.core import codec, files, paths, python, signing
from rekindle.core.errors import ChecksFailed, MissingTool, NotWritable, RekindleError, StepFailed
from rekindle.core.processes import Started
from rekindle.core.programs import which
from rekindle.core.untrusted import InsidePath, Sha256
from rekindle.diagnose.answer import Diagnosis, LogOutcome, shown
from rekindle.diagnose.diagnosis import diagnose_file
from rekindle.fleet import job
from rekindle.fleet.announcement import Announcement, pythons_here
from rekindle.fleet.job import JobKind, JobOrder, JobResult, MadeFile, plain_name
from rekindle.knowledge.builds import costs
from rekindle.stack import plan as plans
from rekindle.wheels.shelf import provenance
from rekindle.wheels.shelf.provenance import BuildFacts
from rekindle.wheels.shelf.store import STATEMENT
from rekindle.wheels.verify.signed_report import signature_beside
from rekindle.wheels.verify.verify import report_beside

_ORDER, _LOG = "order.json", "log.txt"
_TAIL = 16 * 1024
_GRACE = 10.0
_KEPT = (
    "PATH", "LANG", "LC_ALL", "TZ", "SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "PROGRAMFILES",
    "PROGRAMFILES(X86)", "PROGRAMDATA", "PROCESSOR_ARCHITECTURE", "NUMBER_OF_PROCESSORS", "CUDA_PATH", "CUDA_HOME",
    "CUDNN_PATH", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE",
    "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CONFIG_FILE", "PIP_CERT", "PYTHONPATH", "LD_LIBRARY_PATH",
    "HOME", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME",
    *paths.MOVED_BY,
)  # fmt: skip


class Running:
    """An order that is being carried out in this process."""

    def __init__(
        self,
        order: JobOrder,
        *,
        folder: Path,
        received: Callable[[str], Path],
        announcement: Announcement,
        cache: str | None,
        tell: Callable[[str], None],
    ) -> None:
        self.order = order
        self.folder = folder
        self.cancelled = False
        self._received = received
        self._have = announcement
        self._cache = cache
        self._tell = tell
        self._begun = time.monotonic()
        self._program: Started | None = None
        self._lock = threading.Lock()
        self._said: str | None = None
        self._active: Path | None = None
        """The environment whose Python a build uses."""
        self._over = threading.Event()

    @property
    def seconds(self) -> float:
        return round(time.monotonic() - self._begun, 3)

    def run(self) -> JobResult:
        self.folder.mkdir(parents=True, exist_ok=True)
        files.write_text(self.folder / _ORDER, codec.to_json(self.order))
        (self.folder / _LOG).unlink(missing_ok=True)
        if self.order.check is not None:
            made = self._check(self.order.check)
        else:
            made = self._extension() if self.order.lock.kind is JobKind.EXTENSION else self._build()
        self._tell("upload")
        return made

    def say(self, text: str) -> None:
        """The answer; only the first one counts."""
        if not self._over.is_set():
            self._said = text
            self._over.set()

    def answer(self) -> str:
        """The answer, when there is one."""
        self._over.wait()
        if not self._said:
            raise StepFailed("the job broke off")
        return self._said

    def end(self) -> None:
        with self._lock:
            program = self._program
        if program is not None:
            program.end(grace=_GRACE)

    def _check(self, sha256: Sha256) -> JobResult:
        """Somebody else's wheel, on a card of this machine."""
        self._tell("check")
        place = self.folder / "check"
        place.mkdir(exist_ok=True)
        assert self.order.check_name is not None
        wheel = place / self.order.check_name
        if not wheel.exists():
            os.link(self._received(sha256), wheel)
        cards = [word for card in self.order.cards for word in ("--gpu", card)]
        python_words = ["--python", self._interpreter()] if self.order.lock.python else []
        self._rekindle(["verify", str(wheel), *cards, *python_words, "--json"], may=(ChecksFailed.exit_code, 9))
        return msgspec.structs.replace(self._result(wheel, None, {}), wheel=None)

    # -- PyTorch, and CMake projects ------------------------------------------------------------------------------

    def _build(self) -> JobResult:
        order = self.order
        self._provision()
        self._activate()
        if order.plan is not None:
            wanted = self.folder / "plan.toml"
            plans.write(order.plan, wanted)
        else:
            wanted = self._build_file()
        words = ["build", str(wanted), "--work", str(self.folder / "w"), "--yes", "--json", "--jobs", str(self.jobs)]
        words += ["--auto-fix", *(["--cache", "ccache"] if self._launcher() else ["--cache", "none"])]
        said = self._rekindle(words, watch=self.folder / "w" / "journal.jsonl")
        wheel = Path(str(said.get("wheel")))
        used = said.get("cache") or {}
        return self._result(wheel, self._facts(wheel), used)

    def _build_file(self) -> Path:
        order = self.order
        assert order.build is not None and order.source is not None
        place = self._unpacked(order.source)
        plain = codec.to_builtins(order.build)
        wanted = place / ".rekindle-job.toml"
        import tomli_w

        kept = {name: value for name, value in plain.items() if value is not None}
        files.write_text(wanted, tomli_w.dumps(kept))
        return wanted

    def _facts(self, wheel: Path) -> BuildFacts | None:
        """How it was built, as the build's own shelf states it."""
        place = self.folder / "shelf" / "wheels" / f"{wheel.name}{STATEMENT}"
        with contextlib.suppress(RekindleError, OSError):
            own = signing.own_key()
            return provenance.of_file(place, (own.public,) if own else ()).build
        return None

    # -- extensions -----------------------------------------------------------------------------------------------

    def _extension(self) -> JobResult:
        order = self.order
        self._provision()
        environment = self._environment()
        self._tell("compile")
        wheels = self.folder / "wheels"
        cards = [word for card in order.cards for word in ("--gpu", card)]
        project = str(self._unpacked(order.source) if order.source else order.lock.source)
        words = ["extension", "build", project, "--env", str(environment), *cards, "-o", str(wheels), "--json"]
        said = self._rekindle([*words, "--from-source"])
        wheel = Path(str(said.get("wheel")))
        self._tell("verify")
        self._rekindle(["verify", str(wheel), "--against", str(environment), "--no-run", "--json"], may=(9,))
        return self._result(wheel, self._extension_facts(), {})

    def _unpacked(self, source: Sha256) -> Path:
        place = self.folder / "source"
        if not (place / ".whole").is_file():
            job.unpack_source(self._received(source).read_bytes(), place)
            (place / ".whole").touch()
        return place

    def _environment(self) -> Path:
        """An environment with the torch of the plan, made once per worker and shared by its jobs."""
        from filelock import FileLock

        lock = self.order.lock
        name = f"{lock.torch}-{lock.variant or lock.cuda}-{lock.python}-{(self.order.torch_wheel or '')[:12]}"
        place = self.folder.parent.parent / "envs" / plain_name(name)
        place.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(str(place) + ".lock"):
            if not (place / ".whole").is_file():
                self._tell("environment")
                self._make_environment(place)
                (place / ".whole").touch()
        return place

    def _make_environment(self, place: Path) -> None:
        self._program_run(python.isolated(self._interpreter(), "-m", "venv", "--clear", str(place)))
        words = ["install", str(place), "--installer", "pip"]
        if self.order.torch_wheel is not None:
            assert self.order.torch_wheel_name is not None
            wheel = self.folder / self.order.torch_wheel_name
            if not wheel.exists():
                os.link(self._received(self.order.torch_wheel), wheel)
            words += ["--wheel", str(wheel), *(word for card in self.order.cards for word in ("--gpu", card))]
        else:
            assert self.order.plan is not None
            plan = self.folder / "torch.toml"
            plans.write(self.order.plan, plan)
            words += ["--plan", str(plan)]
        self._rekindle([*words, "--json"])
        # An extension is built without isolation, with what is in this environment: a new one has no build tools.
        tools = ["setuptools", "wheel", "ninja", "numpy"]
        self._program_run(python.isolated(str(paths.venv_python(place)), "-m", "pip", "install", "-q", *tools))

    def _interpreter(self) -> str:
        """The Python of the order on this machine."""
        from rekindle.machine.probe import look

        wanted = self.order.lock.python or ""
        found = pythons_here(look())
        if wanted not in found:
            raise MissingTool(f"there is no Python {wanted} here", hint="put it on the worker's PATH")
        return found[wanted]

    def _activate(self) -> None:
        """A build takes the Python of the active environment: one of the order's, whichever is first on PATH here."""
        place = self.folder / "python"
        if self.order.lock.python is None:
            return
        if not (place / ".whole").is_file():
            self._program_run(
                python.isolated(self._interpreter(), "-m", "venv", "--clear", "--without-pip", str(place))
            )
            (place / ".whole").touch()
        self._active = place

    def _extension_facts(self) -> BuildFacts:
        lock = self.order.lock
        return BuildFacts(
            parameters={"project": lock.project, "torch": lock.torch, "arch_list": lock.arch_list},
            tools={"cuda": lock.cuda or "", "python": lock.python or "", "system": f"{lock.system} {lock.machine}"},
            sources={},
            patches={},
        )

    def _provision(self) -> None:
        """The toolkit, where this worker has none but was told that it may assemble one."""
        cuda = self.order.lock.cuda
        if cuda is None or any(kit.version == cuda for kit in self._have.toolkits):
            return
        if f"cuda=={cuda}" in self._have.provisions:
            from rekindle.toolchain.model import ToolSpec
            from rekindle.toolchain.store import Store

            if Store().find(ToolSpec.parse(f"cuda=={cuda}")) is not None:
                # A job before this one has brought it.
                return
            self._tell("toolchain")
            self._rekindle(["toolchain", "install", f"cuda=={cuda}", "--json"])

    # -- programs -------------------------------------------------------------------------------------------------

    @property
    def jobs(self) -> int:
        """This job's share of the machine's cores and memory."""
        cores = max(1, self._have.cores // max(1, self._have.slots))
        return costs.jobs(cores, self._memory, cuda=self.order.lock.cuda is not None) or 1

    @property
    def _memory(self) -> int:
        return int(self._have.memory_gb / max(1, self._have.slots) * 1024**3)

    def _launcher(self) -> bool:
        return self._cache is not None and which("ccache") is not None

    def environ(self) -> dict[str, str]:
        """What a job sees of the worker's environment: what finds programs and networks; folders of its own."""
        root = self.folder
        own = {
            "REKINDLE_SHELF": str(root / "shelf"),
            "TMPDIR": str(root / "tmp"),
            "TEMP": str(root / "tmp"),
            "TMP": str(root / "tmp"),
            "NO_COLOR": "1",
            SHARE: str(self._memory),
        }
        if self._launcher():
            # Two folders of two jobs are told apart by nothing that is compiled in.
            own |= {
                "CCACHE_DIR": str(root.parent.parent / "ccache"),
                "CCACHE_BASEDIR": str(root),
                "CCACHE_NOHASHDIR": "1",
                "CCACHE_COMPILERCHECK": "content",
            }
            if self._cache and "://" in self._cache:
                own["CCACHE_REMOTE_STORAGE"] = self._cache
        (root / "tmp").mkdir(parents=True, exist_ok=True)
        kept = {name: value for name, value in os.environ.items() if name.upper() in _KEPT or name in _KEPT}
        keys = {name: value for name, value in os.environ.items() if name in ("REKINDLE_KEY", "REKINDLE_CONFIG")}
        if self._active is not None:
            programs = str(paths.venv_python(self._active).parent)
            own |= {"VIRTUAL_ENV": str(self._active), "PATH": os.pathsep.join([programs, kept.get("PATH", "")])}
        return {**kept, **keys, **own}

    def _rekindle(self, words: Sequence[str], *, watch: Path | None = None, may: Sequence[int] = ()) -> dict[str, Any]:
        """Run a command of Rekindle and give its JSON; an error carries the diagnosis of its log."""
        out = self.folder / "answer.json"
        code = self._program_run(python.own("rekindle.fleet.confined", *words), out=out, watch=watch)
        text = out.read_text(encoding="utf-8", errors="replace") if out.is_file() else ""
        try:
            said: dict[str, Any] = json.loads(text)
        except ValueError:
            said = {}
        if code == 0 or code in may:
            return said
        if self.cancelled:
            raise StepFailed("cancelled")
        message = str(said.get("message") or f"`rekindle {words[0]}` exited with code {code}")
        raise NotWritable(message) if code == NotWritable.exit_code else StepFailed(message, hint=said.get("hint"))

    def _program_run(self, args: Sequence[str], *, out: Path | None = None, watch: Path | None = None) -> int:
        log = self.folder / _LOG
        with log.open("ab") as errors, (out or log).open("wb" if out else "ab") as answers:
            errors.write(f"+ {' '.join(args[:6])} …\n".encode())
            errors.flush()
            with self._lock:
                if self.cancelled:
                    raise StepFailed("cancelled")
                self._program = Started(
                    args, env=self.environ(), cwd=self.folder, stdout=answers, stderr=errors, stdin=subprocess.DEVNULL
                )
            with self._program as program:
                self._wait(program, watch)
                code = int(program.process.returncode)
            self._program = None
        if code and out is None:
            raise StepFailed(f"`{Path(args[0]).name}` exited with code {code}")
        return code

    def _wait(self, program: Started, watch: Path | None) -> None:
        """Until it ends; meanwhile the step that its journal names is told."""
        told = None
        while True:
            try:
                program.process.wait(timeout=0.25)
                return
            except subprocess.TimeoutExpired:
                step = _step(watch) if watch is not None else None
                if step and step != told:
                    told = step
                    self._tell(step)

    # -- the result -----------------------------------------------------------------------------------------------

    def _result(self, wheel: Path, facts: BuildFacts | None, used: dict[str, Any]) -> JobResult:
        report = report_beside(wheel)
        return JobResult(
            key=self.order.key,
            done=True,
            seconds=self.seconds,
            wheel=self._made(wheel),
            report=self._made(report) if report.is_file() else None,
            signature=self._made(signature_beside(report)) if signature_beside(report).is_file() else None,
            facts=facts,
            log=log_tail(self.folder),
            cache_hits=used.get("hits"),
            cache_misses=used.get("misses"),
        )

    def _made(self, path: Path) -> MadeFile:
        name = InsidePath(path.resolve().relative_to(self.folder.resolve()).as_posix())
        return MadeFile(name=name, sha256=paths.sha256_of(path), size=path.stat().st_size)


def diagnosed(folder: Path) -> Diagnosis | None:
    """What `rekindle diagnose` makes of the log of the step that failed; None when it shows no cause."""
    log = _last_log(folder)
    if log is None:
        return None
    try:
        found = shown(diagnose_file(log))
    except RekindleError:
        return None
    return found if found.outcome is LogOutcome.CAUSE else None


def _last_log(folder: Path) -> Path | None:
    """Of this try: the folder is kept, and a round before may have failed at another step."""
    begun = _written(folder / _ORDER)
    steps = sorted((folder / "w" / "logs").glob("*.log"), key=_written)
    logs = [each for each in (folder / _LOG, *steps) if each.is_file() and _written(each) >= begun]
    return logs[-1] if logs else None


def _written(path: Path) -> float:
    return path.stat().st_mtime if path.exists() else 0.0


def log_tail(folder: Path) -> str:
    """The end of the failed step's log, else of the job's."""
    log = _last_log(folder)
    if log is None:
        return ""
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - _TAIL))
        return stream.read(_TAIL).decode("utf-8", "replace")


def is_full(error: Exception) -> bool:
    return isinstance(error, NotWritable) or (isinstance(error, OSError) and error.errno in files.FULL | {errno.ENOSPC})


def _step(journal: Path) -> str | None:
    try:
        entries = build_journal.read(journal)
    except (RekindleError, OSError):
        return None
    return next((each.step for each in reversed(entries) if each.event == "begin"), None)
