"""Small real git repositories: a project with a tag, submodules and a submodule of a submodule."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

_AUTHOR = {
    "GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@example.org", "GIT_COMMITTER_NAME": "t",
    "GIT_COMMITTER_EMAIL": "t@example.org", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1",
}  # fmt: skip


def git(folder: Path, *args: str) -> str:
    done = subprocess.run(
        ["git", "-c", "protocol.file.allow=always", "-c", "init.defaultBranch=main", *args],
        cwd=folder,
        env={**os.environ, **_AUTHOR},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def repository(folder: Path, files: dict[str, str], pins: dict[str, tuple[str, str]] | None = None) -> str:
    """A repository with one commit before and one at the state given; returns the latter's hash.

    `pins` maps a path to (address, commit), as a submodule records it.
    """
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    git(folder, "commit", "-q", "--allow-empty", "-m", "earlier")
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8", newline="\n")
    lines = []
    for path, (url, commit) in (pins or {}).items():
        lines += [f'[submodule "{path}"]', f"\tpath = {path}", f"\turl = {url}"]
        git(folder, "update-index", "--add", "--cacheinfo", f"160000,{commit},{path}")
    if lines:
        (folder / ".gitmodules").write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
    git(folder, "add", "-A", "--", *files, *([".gitmodules"] if lines else []))
    git(folder, "commit", "-q", "-m", "the state")
    return git(folder, "rev-parse", "HEAD")


def project(folder: Path, *, base: str = "https://github.com") -> str:
    """Mirrors of a small PyTorch: pytorch → FBGEMM → asmjit, and pytorch → fmt. Returns the tag's commit."""
    asmjit = repository(folder / "asmjit", {"src/asm.h": "int asm_;\n", "CMakeLists.txt": "project(a)\n"})
    fbgemm = repository(
        folder / "FBGEMM", {"fbgemm.h": "int f;\n"}, {"third_party/asmjit": (f"{base}/asmjit/asmjit.git", asmjit)}
    )
    fmt = repository(folder / "fmt", {"include/fmt.h": "int fmt;\n"})
    top = repository(
        folder / "pytorch",
        {"version.txt": "1.13.0a0\n", "CMakeLists.txt": "project(torch)\n", "android/big.bin": "x\n"},
        {"third_party/fbgemm": (f"{base}/pytorch/fbgemm", fbgemm), "third_party/fmt": (f"{base}/fmtlib/fmt.git", fmt)},
    )
    # Not the newest of its minor release: of that one the tables know the real commit.
    git(folder / "pytorch", "tag", "-a", "v1.13.0", "-m", "release")
    return top
