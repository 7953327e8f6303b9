"""The folder of a build is the user's own, or nothing is written into it. Follows `standalone` in the script.

The usual one lies where everybody may make folders: whoever was there first may have put links into it.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from rekindle.build.script.standalone import understood

NOT_OURS = 13
# FILE_ATTRIBUTE_REPARSE_POINT: a link or a junction.
REPARSE = 0x400
# On Windows: SYSTEM, the administrators, TrustedInstaller; and everybody, where a disk has no owners at all.
TRUSTED = (
    "S-1-5-18",
    "S-1-5-32-544",
    "S-1-5-80-956008885-3418522649-1831038044-1853292631-2271478464",
    "S-1-1-0",
)


def own_folder(*words: str) -> int:
    """RK_WORK is there afterwards, nobody else can write into it, and no link in it leads elsewhere."""
    code = understood(*words)
    if code:
        return code
    work = Path(os.path.abspath(os.environ["RK_WORK"]))  # noqa: PTH100 - a link must be seen
    try:
        wrong = doubt(work)
        if not wrong:
            make_folder(work)
            # Somebody may have been faster.
            wrong = doubt(work)
    except OSError as error:
        wrong = f"Cannot write to {work}: {error.strerror or error}"
    if not wrong:
        return 0
    print(f"{wrong}\nNothing was written. Correct RK_WORK near the top of this script: name a folder of your own.")
    return NOT_OURS


def make_folder(work: Path) -> None:
    work.parent.parent.mkdir(parents=True, exist_ok=True)
    for path in (work.parent, work):
        if not path.is_dir():
            path.mkdir(0o700)


def doubt(work: Path) -> str:
    """Why this folder, or the one above it, whose owner could put another in its place, is not to be used."""
    for path in (work.parent, work):
        if not os.path.lexists(str(path)):
            continue
        mine = owner(path) in ours()
        if is_link(path) and (path == work or os.name == "nt" or not mine):
            return f"{path} is a link: what is written there would come to lie elsewhere"
        if not path.is_dir():
            return f"Cannot write to {path}: it is no folder"
        if not (mine and owner(path.resolve()) in ours()) and path.parent != path:
            return f"{path} belongs to another user ({owner(path)})"
        mode = 0 if os.name == "nt" else path.stat().st_mode
        if mode & stat.S_IWOTH and (path == work or not mode & stat.S_ISVTX):
            return f"everybody may write into {path}"
    for top in (work, work / "logs", work / "done"):
        for path in sorted(top.iterdir()) if top.is_dir() else ():
            if is_link(path):
                return f"{path} is a link, and this script makes none there"
    return ""


def is_link(path: Path) -> bool:
    found = path.lstat()
    return stat.S_ISLNK(found.st_mode) or bool(getattr(found, "st_file_attributes", 0) & REPARSE)


if sys.platform == "win32":
    import ctypes

    _security = ctypes.WinDLL("advapi32")
    _kernel = ctypes.WinDLL("kernel32")
    _kernel.GetCurrentProcess.restype = ctypes.c_void_p
    _kernel.LocalFree.argtypes = [ctypes.c_void_p]
    _security.OpenProcessToken.argtypes = [ctypes.c_void_p, ctypes.c_ulong, ctypes.c_void_p]
    _security.GetTokenInformation.argtypes = [
        ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_void_p,
    ]  # fmt: skip
    _security.ConvertSidToStringSidW.argtypes = [ctypes.c_void_p, ctypes.c_void_p]

    def owner(path: Path) -> str | None:
        """As a SID; None where Windows does not say."""
        sid, descriptor = ctypes.c_void_p(), ctypes.c_void_p()
        answers = [ctypes.byref(sid), None, None, None, ctypes.byref(descriptor)]
        if _security.GetNamedSecurityInfoW(ctypes.c_wchar_p(str(path)), 1, 1, *answers):
            return None
        found = _spelled(sid)
        _kernel.LocalFree(descriptor)
        return found

    def ours() -> tuple[str | None, ...]:
        """This user, whom new files of this user belong to, and whoever owns Windows itself."""
        token, size = ctypes.c_void_p(), ctypes.c_ulong()
        found = []
        if _security.OpenProcessToken(_kernel.GetCurrentProcess(), 8, ctypes.byref(token)):
            for kind in (1, 4):
                _security.GetTokenInformation(token, kind, None, 0, ctypes.byref(size))
                answer = ctypes.create_string_buffer(max(size.value, ctypes.sizeof(ctypes.c_void_p)))
                if _security.GetTokenInformation(token, kind, answer, size, ctypes.byref(size)):
                    found.append(_spelled(ctypes.c_void_p.from_buffer(answer)))
        return (*found, *TRUSTED, None)

    def _spelled(sid: ctypes.c_void_p) -> str | None:
        text = ctypes.c_wchar_p()
        if not sid or not _security.ConvertSidToStringSidW(sid, ctypes.byref(text)):
            return None
        found = text.value
        _kernel.LocalFree(ctypes.cast(text, ctypes.c_void_p))
        return found

else:

    def owner(path: Path) -> str | None:
        return f"uid {path.lstat().st_uid}"

    def ours() -> tuple[str | None, ...]:
        """This user and root; for root also whoever called sudo."""
        sudo = os.environ.get("SUDO_UID", "") if os.getuid() == 0 else ""
        return (f"uid {os.getuid()}", "uid 0", *([f"uid {sudo}"] if sudo.isdigit() else []))
