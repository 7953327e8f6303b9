"""A real Slurm of one node, in a folder of its own, for as long as a test takes."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from support.artefacts import unverified
from support.fleets import free_port, until

_CONF = """ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={root}/munge.sock
CredType=cred/munge
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool
SlurmctldPidFile={root}/ctld.pid
SlurmdPidFile={root}/slurmd.pid
SlurmctldPort={ctld}
SlurmdPort={slurmd}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MailProg=/bin/true
SwitchType=switch/none
MpiDefault=none
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def program(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    if found is None or os.geteuid() != 0:
        unverified(f"{name} is not installed" if found is None else "Slurm is started by root only")
    return str(found)


@contextlib.contextmanager
def slurm(root: Path) -> Iterator[dict[str, str]]:
    """The environment in which `sbatch` and the others talk to it."""
    munged, controller, node = program("munged"), program("slurmctld"), program("slurmd")
    root.mkdir(mode=0o700)
    for name in ("state", "spool"):
        (root / name).mkdir()
    (root / "munge.key").write_bytes(os.urandom(1024))
    (root / "munge.key").chmod(0o600)
    host = socket.gethostname().partition(".")[0]
    text = _CONF.format(host=host, root=root, ctld=free_port(), slurmd=free_port(), cores=os.cpu_count() or 1)
    (root / "slurm.conf").write_text(text, encoding="utf-8")
    environ = {**os.environ, "SLURM_CONF": str(root / "slurm.conf")}
    with contextlib.ExitStack() as stack:
        words = [f"--{name}={root}/{file}" for name, file in (
            ("key-file", "munge.key"), ("socket", "munge.sock"), ("pid-file", "munged.pid"), ("seed-file", "seed"),
            ("log-file", "munged.log"))]  # fmt: skip
        _start(stack, [munged, "--foreground", "--force", *words], environ, root / "munged.txt")
        until((root / "munge.sock").exists, 20, "munged did not start")
        _start(stack, [controller, "-D"], environ, root / "ctld.txt")
        _start(stack, [node, "-D"], environ, root / "slurmd.txt")
        until(lambda: b"idle" in _asked(["sinfo", "-h", "-o", "%T"], environ), 60, "the node did not become idle")
        yield environ


def finished(environ: dict[str, str], seconds: float) -> None:
    """Wait until the queue is empty."""
    limit = time.monotonic() + seconds
    while _asked(["squeue", "-h"], environ).strip():
        assert time.monotonic() < limit, _asked(["squeue"], environ)
        time.sleep(0.5)


def _asked(words: list[str], environ: dict[str, str]) -> bytes:
    return subprocess.run([program(words[0]), *words[1:]], env=environ, capture_output=True, check=False).stdout


def _start(stack: contextlib.ExitStack, words: list[str], environ: dict[str, str], log: Path) -> None:
    with log.open("wb") as stream:
        process = subprocess.Popen(words, env=environ, stdout=stream, stderr=stream, stdin=subprocess.DEVNULL)
    stack.callback(process.wait)
    stack.callback(process.terminate)
