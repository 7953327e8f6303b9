"""A named Windows semaphore: what `--jobserver-auth` names there."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    import ctypes
    from ctypes import wintypes

    _kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
    _kernel32.CreateSemaphoreW.restype = wintypes.HANDLE
    _kernel32.CreateSemaphoreW.argtypes = [wintypes.LPVOID, wintypes.LONG, wintypes.LONG, wintypes.LPCWSTR]
    _kernel32.WaitForSingleObject.argtypes = [wintypes.HANDLE, wintypes.DWORD]
    _kernel32.ReleaseSemaphore.argtypes = [wintypes.HANDLE, wintypes.LONG, wintypes.LPVOID]
    _kernel32.CloseHandle.argtypes = [wintypes.HANDLE]
    _EXISTS_ALREADY = 183

    class Semaphore:
        """A new one of this name, holding `count` of at most `most`."""

        def __init__(self, name: str, count: int, most: int) -> None:
            ctypes.set_last_error(0)
            self._handle = _kernel32.CreateSemaphoreW(None, count, most, name)
            problem = ctypes.get_last_error()
            if not self._handle:
                raise ctypes.WinError(problem)
            if problem == _EXISTS_ALREADY:
                self.close()
                raise ctypes.WinError(problem)

        def take(self) -> bool:
            """One less, if there is one now."""
            return bool(_kernel32.WaitForSingleObject(self._handle, 0) == 0)

        def give(self) -> None:
            if not _kernel32.ReleaseSemaphore(self._handle, 1, None):
                raise ctypes.WinError(ctypes.get_last_error())

        def close(self) -> None:
            if self._handle:
                _kernel32.CloseHandle(self._handle)
                self._handle = None
