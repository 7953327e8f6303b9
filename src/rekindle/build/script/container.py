"""`rekindle build --container FILE`: one plan as a Dockerfile whose last stage holds the shelf and nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec

from rekindle.build import provision
from rekindle.build.configure import request
from rekindle.build.configure.request import BuildFile
from rekindle.core import command, files, own, paths
from rekindle.core.errors import UsageError
from rekindle.machine.model import Machine
from rekindle.stack import plan as plans

_PACKAGES = "ccache cmake g++ git ninja-build"
_VENV = "python3 -c 'import ensurepip' 2>/dev/null"
"""An image of Python's brings it; Debian's own has none, or one that cannot make environments."""
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]*")
_HEAD = "# Written by `rekindle build --container`."


class ContainerFile(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `rekindle build --container`."""

    schema: str = "rekindle.container/1"
    path: str
    base: str
    copies: tuple[str, ...]
    """What it takes from the folder that it is built in."""
    tools: tuple[str, ...]


def write(plan: Path, path: Path, *, base: str | None = None, rekindle: str | None = None) -> ContainerFile:
    """Write the Dockerfile of a plan or build file. A file that somebody else wrote is never replaced."""
    wanted = request.read(plan)
    if request.is_plan(plan) and (system := plans.read(plan).system) != "linux":
        raise UsageError(f"this plan is for {system.capitalize()}", hint="a container is Linux; plan with `--os linux`")
    if base is not None and not _IMAGE.fullmatch(base):
        raise UsageError(f"`{base[:60]}` is not the name of an image", hint="write it like `python:3.12-bookworm`")
    if path.exists() and not files.read_bytes(path).startswith(_HEAD.encode()):
        raise UsageError(f"`{path}` is there already and was not written by Rekindle", hint="name another file")
    made = ContainerFile(
        path=str(path),
        base=base or f"python:{_python(wanted)}-bookworm",
        copies=_copies(wanted, plan, path),
        tools=_tools(wanted, plans.read(plan).machine if request.is_plan(plan) else paths.architecture()),
    )
    files.write_text(path, text(made, plan.name, own.elsewhere(rekindle)))
    return made


def text(made: ContainerFile, plan: str, rekindle: str) -> str:
    install = command.rekindle("toolchain", "install", *made.tools, "--accept-licence")
    tools = f"{command.dockerfile(install)}\n" if made.tools else ""
    own = command.pip("install", "--no-cache-dir", rekindle, python="/opt/rekindle/bin/python")
    build = command.rekindle("build", plan, "--yes", "--work", "/src/b", "--cache", "ccache")
    copies = "".join(f"COPY {json.dumps([name, f'/src/{name}'])}\n" for name in made.copies)
    terms = (
        "# By building it you accept the terms of NVIDIA's CUDA toolkit: `rekindle toolchain install` shows them.\n"
        if any(tool.startswith("cu") for tool in made.tools)
        else ""
    )
    return f"""{_HEAD}
# The wheel and its statement come out with: docker build -f THIS_FILE -o shelf .
# UNVERIFIED: that the base image and Rekindle itself can be had; name others with `--base` and `--rekindle`.
{terms}ARG BASE={made.base}
FROM ${{BASE}} AS build
RUN apt-get update \\
 && apt-get install -y --no-install-recommends {_PACKAGES} $({_VENV} || echo python3 python3-venv) \\
 && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/rekindle
{command.dockerfile(own)}
ENV PATH=/opt/rekindle/bin:$PATH REKINDLE_SHELF=/shelf CCACHE_DIR=/ccache
{tools}WORKDIR /src
{copies}{command.dockerfile(build, "--mount=type=cache,target=/ccache")}
FROM scratch
COPY --from=build /shelf /
"""


def _python(wanted: BuildFile) -> str:
    named = wanted.python or ""
    return named if named.replace(".", "").isdigit() else "3.12"


def _copies(wanted: BuildFile, plan: Path, path: Path) -> tuple[str, ...]:
    """The plan, and a source of your own: both must lie beside the Dockerfile."""
    root = path.resolve().parent
    found = [plan.resolve()]
    if wanted.source:
        found.append((plan.resolve().parent / wanted.source).resolve())
    try:
        names = [each.relative_to(root).as_posix() for each in found]
    except ValueError as error:
        message = f"`{plan}` and its source must lie beside `{path}`"
        raise UsageError(message, hint="a container takes only what is in the folder it is built in") from error
    return (".",) if "." in names else tuple(names)


def _tools(wanted: BuildFile, arch: str) -> tuple[str, ...]:
    """What a bare Debian lacks. Its GCC may do: a CUDA brings another where it does not."""
    lacks = provision.lacking(wanted, Machine(os="linux", arch=arch))
    words = [tool for tool in lacks.tools if tool != "gcc"]
    if lacks.cuda is not None and len(words) > 1:
        words += ["--cuda", str(lacks.cuda.major_minor)]
    return tuple(words)
