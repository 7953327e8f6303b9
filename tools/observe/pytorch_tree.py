"""PyTorch's own tree at a release, read from a clone with git; nothing is checked out.

A release is read at its tag. Where the clone has no such tag, `stated/pytorch_trees.toml` may name the commit that
stands for it, and every row that follows says so.
"""

from __future__ import annotations

import functools
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from packaging.version import Version

from tools.observe import table

STATED = Path(__file__).parent / "stated" / "pytorch_trees.toml"
_TOKEN = re.compile(
    r"#\[(?P<comment>=*)\[.*?\](?P=comment)\]|#[^\n]*|(?P<quoted>\"(?:[^\"\\]|\\.)*\")|(?P<open>\()|(?P<close>\))"
    r"|(?P<word>(?:[^\s()#\"\\]|\\.)+)",
    re.DOTALL,
)


def git(clone: str, *words: str) -> str:
    done = subprocess.run(["git", "-C", clone, *words], capture_output=True, check=False)
    return done.stdout.decode("utf-8", errors="replace") if done.returncode == 0 else ""


def tag_of(minor: str) -> str:
    row = next(row for row in table.read("torch_releases")["releases"] if row["minor"] == minor)
    return f"v{max(row['patches'], key=Version)}"


def stated_commits() -> dict[str, str]:
    rows: list[dict[str, Any]] = msgspec.toml.decode(STATED.read_bytes())["tree"]
    return {row["minor"]: row["commit"] for row in rows}


def revision(clone: str, minor: str, tag: str) -> str | None:
    """The tag if the clone has it, else the commit that a person named for this release; None: neither is there."""
    for name in (tag, stated_commits().get(minor)):
        if name and git(clone, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"):
            return name
    return None


def trees(clone: str) -> dict[str, str]:
    """The revision of each minor release that the clone has, oldest first."""
    minors = sorted((row["minor"] for row in table.read("torch_releases")["releases"]), key=Version)
    found = {minor: revision(clone, minor, tag_of(minor)) for minor in minors}
    return {minor: name for minor, name in found.items() if name}


@functools.lru_cache(maxsize=512)
def show(clone: str, revision: str, path: str) -> str:
    return git(clone, "show", f"{revision}:{path}")


def files(clone: str, revision: str, *places: str) -> list[str]:
    return git(clone, "ls-tree", "-r", "--name-only", revision, *places).splitlines()


def cmake_calls(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each command of a CMake file with its arguments; quotes are taken off, brackets inside stay words."""
    name, words, depth = "", list[str](), 0
    for token in _TOKEN.finditer(text):
        if token["open"]:
            depth += 1
            if depth > 1:
                words.append("(")
        elif token["close"]:
            depth = max(depth - 1, 0)
            if depth:
                words.append(")")
            elif name:
                yield name, words
                name, words = "", []
        elif (text_of := token["quoted"] or token["word"]) is not None:
            if depth:
                words.append(text_of[1:-1].replace('\\"', '"') if token["quoted"] else text_of)
            else:
                name, words = text_of.lower(), []
