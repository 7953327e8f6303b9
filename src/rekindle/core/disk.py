"""What a folder holds, and whether it lies on a Dev Drive of Windows 11. Needs Python alone: build scripts carry it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

DEV_VOLUME, UNKNOWN_TO_THIS_WINDOWS = 0x2000, 87


def dev_drive(path: str) -> bool | None:
    """The flag of the volume itself, as `os.path.isdevdrive` of Python 3.12 reads it; None where nobody says.

    `fsutil devdrv query` answers in the language of Windows, and with exit code 0 whatever the drive is.
    """
    if os.name != "nt":
        return None
    import ctypes

    kernel: Any = getattr(ctypes, "WinDLL")("kernel32", use_last_error=True)  # noqa: B009 - no such thing elsewhere
    kernel.CreateFileW.restype = ctypes.c_void_p
    volume = ctypes.create_unicode_buffer(261)
    if not kernel.GetVolumePathNameW(path, volume, 261):
        return None
    # Its attributes alone, shared with everybody, of a folder (FILE_FLAG_BACKUP_SEMANTICS).
    handle = ctypes.c_void_p(kernel.CreateFileW(volume, 0x80, 3, None, 3, 0x02000000, None))
    if handle.value == ctypes.c_void_p(-1).value:
        return None
    # FSCTL_QUERY_PERSISTENT_VOLUME_STATE: flags, which of them are asked for, version, reserved.
    state = (ctypes.c_uint32 * 4)(0, DEV_VOLUME, 1, 0)
    told = kernel.DeviceIoControl(handle, 0x9023C, state, 16, state, 16, ctypes.byref(ctypes.c_uint32()), None)
    error = getattr(ctypes, "get_last_error")()  # noqa: B009
    kernel.CloseHandle(handle)
    if not told:
        return False if error == UNKNOWN_TO_THIS_WINDOWS else None
    return bool(state[0] & DEV_VOLUME)


def size_of(top: Path) -> int:
    """The bytes of all files below a folder, as far as they can be seen."""
    total = 0
    for folder, _, names_in in os.walk(str(top)):
        for name in names_in:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size  # noqa: PTH118 - thousands of files
            except OSError:
                continue
    return total
