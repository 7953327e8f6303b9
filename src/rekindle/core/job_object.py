"""A Windows Job Object: processes that end together, also when the process that holds the job dies.

The program is created asleep, put into the job, and then woken, so that nothing it starts can slip out.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

if sys.platform == "win32":
    import ctypes
    from ctypes import wintypes

    _kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
    _kernel32.CreateJobObjectW.restype = wintypes.HANDLE
    _kernel32.CreateJobObjectW.argtypes = [wintypes.LPVOID, wintypes.LPCWSTR]
    _kernel32.AssignProcessToJobObject.argtypes = [wintypes.HANDLE, wintypes.HANDLE]
    _kernel32.TerminateJobObject.argtypes = [wintypes.HANDLE, wintypes.UINT]
    _kernel32.SetInformationJobObject.argtypes = [wintypes.HANDLE, ctypes.c_int, wintypes.LPVOID, wintypes.DWORD]
    _kernel32.CloseHandle.argtypes = [wintypes.HANDLE]
    _ntdll = ctypes.WinDLL("ntdll")
    _ntdll.NtResumeProcess.argtypes = [wintypes.HANDLE]
    _ntdll.NtResumeProcess.restype = ctypes.c_long

    _CREATE_SUSPENDED = 0x4
    _EXTENDED_LIMITS = 9
    _KILL_ON_CLOSE = 0x2000
    _ENDED = 0xC000013A  # as if by Ctrl-C

    class _Limits(ctypes.Structure):
        """JOBOBJECT_EXTENDED_LIMIT_INFORMATION; only the flags are used."""

        _fields_ = [
            ("process_time", ctypes.c_int64),
            ("job_time", ctypes.c_int64),
            ("flags", wintypes.DWORD),
            ("minimum_working_set", ctypes.c_size_t),
            ("maximum_working_set", ctypes.c_size_t),
            ("active_processes", wintypes.DWORD),
            ("affinity", ctypes.c_size_t),
            ("priority_class", wintypes.DWORD),
            ("scheduling_class", wintypes.DWORD),
            ("io_counters", ctypes.c_uint64 * 6),
            ("process_memory", ctypes.c_size_t),
            ("job_memory", ctypes.c_size_t),
            ("peak_process_memory", ctypes.c_size_t),
            ("peak_job_memory", ctypes.c_size_t),
        ]

    class Job:
        """Ends all its processes when it is ended, or when the last handle to it closes."""

        def __init__(self) -> None:
            self.handle = _kernel32.CreateJobObjectW(None, None)
            if not self.handle:
                raise ctypes.WinError(ctypes.get_last_error())
            self._limit(_KILL_ON_CLOSE)

        def add(self, process: int) -> None:
            if not _kernel32.AssignProcessToJobObject(self.handle, process):
                raise ctypes.WinError(ctypes.get_last_error())

        def end(self) -> None:
            if self.handle:
                _kernel32.TerminateJobObject(self.handle, _ENDED)

        def release(self) -> None:
            """Close the job without ending what still runs in it."""
            if self.handle:
                self._limit(0)
                _kernel32.CloseHandle(self.handle)
                self.handle = None

        def _limit(self, flags: int) -> None:
            limits = _Limits(flags=flags)
            size = ctypes.sizeof(limits)
            if not _kernel32.SetInformationJobObject(self.handle, _EXTENDED_LIMITS, ctypes.byref(limits), size):
                raise ctypes.WinError(ctypes.get_last_error())

    def start_in(job: Job, command: str, options: dict[str, Any]) -> subprocess.Popen[bytes]:
        """Start a command line inside `job`."""
        flags = subprocess.CREATE_NO_WINDOW | subprocess.CREATE_NEW_PROCESS_GROUP | _CREATE_SUSPENDED
        process: subprocess.Popen[bytes] = subprocess.Popen(command, creationflags=flags, **options)
        try:
            handle = int(process._handle)  # type: ignore[attr-defined]
            job.add(handle)
            if _ntdll.NtResumeProcess(handle) < 0:
                raise OSError("the program could not be woken after it was put into its job")
        except BaseException:
            process.kill()
            process.wait(timeout=10)
            raise
        return process
