"""The process of one job: ends with its worker, writes no core files, then is `rekindle` with its words."""

from __future__ import annotations

import contextlib
import ctypes
import os
import runpy
import signal
import sys


def confine() -> None:
    """Windows ends a job with its worker by itself: they are in one Job Object."""
    os.umask(0o077)
    if sys.platform == "linux":
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        parent = os.getppid()
        with contextlib.suppress(OSError, AttributeError):
            # PR_SET_PDEATHSIG: a worker that is killed takes its jobs with it; a build ends its compilers on SIGTERM.
            ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    confine()
    runpy.run_module("rekindle", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
