"""Takes out what must not travel: user and host names, serial numbers, tokens, addresses.

`secrets` takes passwords and tokens out of a text, and the console does it with everything that it writes. `redact`
also takes out who and where: it is applied to snapshots, paste blocks and logs before they leave the machine. What is
replaced keeps its shape (`C:\\Users\\<user>\\source`; `<the user>` for a name with a space, `<üser>` for one beyond
ASCII), because a path with a space or an umlaut breaks builds, and whoever reads the snapshot must still see that it
has one.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

_KEY = (
    r"(?:token|secret|passw(?:or)?d|passphrase|credentials?|authorization|auth|"
    r"(?:api|access|private|secret|signing|account)[_-]?key|signature)s?"
)
_SIGNS = (
    "://", "bearer", "bas", "token", "secret", "passw", "passphrase", "cred", "auth", "key", "nature",
    "gh", "glpat", "hf_", "xox", "sk-", "akia", "nvap", "eyj",
)  # fmt: skip
"""No secret is without one of these, folded: most lines have none, and the expression is not even compiled."""
_LONG_WORD = 16
# Nobody's name: what systems call their own users, and words of the field that a snapshot is made of.
_ORDINARY = frozenset(
    {"public", "default", "all users", "root", "user", "admin", "administrator", "<user>", "home", "localhost"}
    | {"linux", "windows", "debian", "ubuntu", "fedora", "centos", "arch", "alpine", "rocky", "almalinux", "opensuse"}
    | {
        "ec2-user",
        "cloud-user",
        "runner",
        "vscode",
        "docker",
        "container",
        "wsl",
        "system",
        "venv",
        "conda",
        "embedded",
    }
    | {
        "nvidia",
        "cuda",
        "cudnn",
        "torch",
        "pytorch",
        "python",
        "python3",
        "pip",
        "gcc",
        "clang",
        "msvc",
        "nvcc",
        "ninja",
    }
)


@cache
def _secrets() -> re.Pattern[str]:
    return re.compile(
        rf"""(?x)
        (?P<scheme>\b[a-z][a-z0-9+.-]{{0,30}}://)[^/\s:@"'`<>]*:[^/\s@"'`<>]+(?=@)        # user:password@host
        | (?P<web>https?://)[^/\s:@"'`<>?\#]{{8,}}(?=@)                         # token@host
        | (?P<bearer>\b(?i:(?:authorization\s*[:=]\s*["']?)?(?:bearer|basic))\s+)[A-Za-z0-9._~+/=-]{{8,}}
        | (?P<option>(?<!\S)--?(?i:token|password|secret|(?:api|access|secret)-key)\s+)[^\s"'`;&-][^\s"'`;&]{{3,}}
        | (?P<named>(?<![A-Za-z])(?i:{_KEY})(?:[_-]\w{{1,40}})?)
          (?P<sep>["']?\s{{0,3}}[=:]\s{{0,3}}["']?)
          (?![=<>~!\s])(?P<value>[^\s"'`;&,)}}\]<]{{4,}})
        | \b(?:gh[pousr]_[A-Za-z0-9]{{20,}}|github_pat_\w{{20,}}|glpat-[\w-]{{16,}}|hf_[A-Za-z0-9]{{20,}}
             |xox[abprs]-[\w-]{{10,}}|sk-[A-Za-z0-9_-]{{20,}}|AKIA[0-9A-Z]{{16}}|nvapi-[\w-]{{20,}}
             |eyJ[\w-]{{8,2000}}\.[\w-]{{8,4000}}\.[\w-]{{8,}})
        """
    )


@cache
def _secret_name() -> re.Pattern[str]:
    return re.compile(rf"(?<![A-Za-z])(?i:{_KEY})(?![A-Za-z])")


@cache
def _who() -> re.Pattern[str]:
    return re.compile(
        r"""(?x)
        \bGPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b             # a card's UUID
        | (?P<serial>(?i:serial(?:\s+number)?|board\s+id)\s*[:=]\s*)(?P<number>[0-9A-Fx]{6,})
        | \b[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{2,63})+\b               # e-mail
        """
    )


@cache
def _homes() -> re.Pattern[str]:
    return re.compile(
        r"(?i)((?:[a-z]:)?[\\/]{1,8}(?:users|home|documents and settings)[\\/]{1,8})"
        r"([^\\/\r\n\"'<>|:*?]+?)(?=[\\/\"'\r\n;]|$)"
    )


def redact(text: str, *, names: Iterable[str] | None = None) -> str:
    """`text` without names and secrets. `names` are this machine's user and host names unless given."""
    text = _who().sub(_nameless, secrets(text))
    text = _homes().sub(lambda m: m.group(1) + (m.group(2) if m.group(2).lower() in _ORDINARY else _nobody(m[2])), text)
    for name in sorted(local_names() if names is None else names, key=len, reverse=True):
        if len(name) > 2 and name.lower() not in _ORDINARY:
            text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", "<name>", text)
    return text


def local_names() -> set[str]:
    """The names by which this machine and its user are known."""
    import getpass
    import socket

    names = {socket.gethostname(), socket.gethostname().split(".")[0]}
    with contextlib.suppress(RuntimeError):  # a user without an entry in the system has no home
        names.add(Path.home().name)
    names |= {os.environ.get(key, "") for key in ("USERNAME", "USER", "COMPUTERNAME", "HOSTNAME", "USERDOMAIN")}
    with contextlib.suppress(OSError, KeyError, ImportError):
        names.add(getpass.getuser())
    return {name for name in names if name}


def _nobody(name: str) -> str:
    """Nobody's name, of the same shape as `name`."""
    return f"<{'the ' if ' ' in name else ''}{'user' if name.isascii() else 'üser'}>"


def secrets(text: str) -> str:
    """`text` without passwords and tokens."""
    folded = text.casefold()
    return _secrets().sub(_mask, text) if any(sign in folded for sign in _SIGNS) else text


def without_secrets(value: Any) -> Any:
    """The same for plain data: texts, and whatever stands under a name like `HF_TOKEN`."""
    if isinstance(value, str):
        return secrets(value)
    if isinstance(value, Mapping):
        return {key: _of_name(str(key), item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_secrets(item) for item in value]
    return value


def _of_name(name: str, value: Any) -> Any:
    if isinstance(value, str) and value and _secret_name().search(name) and not value.isspace():
        return "<secret>"
    return without_secrets(value)


def _mask(match: re.Match[str]) -> str:
    before = match.group("scheme") or match.group("web") or match.group("bearer") or match.group("option")
    if before:
        return f"{before}<secret>"
    if not match.group("named"):
        return "<secret>"
    if match.group("sep").strip() == ":" and match.group("value").isalpha() and len(match.group("value")) < _LONG_WORD:
        return match.group()  # `error: before token: expected`
    return f"{match.group('named')}{match.group('sep')}<secret>"


def _nameless(match: re.Match[str]) -> str:
    if match.group("serial"):
        return f"{match.group('serial')}<serial>"
    return "<uuid>" if match.group().startswith("GPU-") else "<secret>"
