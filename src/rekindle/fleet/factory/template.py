"""The files of a factory's repository: matrix, workflow, and a page that says how to press the button."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rekindle.build.configure import tree
from rekindle.core import codec, console, files, own, untrusted
from rekindle.core.command import ShellVariable, rekindle, workflow_step
from rekindle.core.errors import UsageError
from rekindle.core.untrusted import ProjectName
from rekindle.core.version import Version
from rekindle.fleet import matrix_file, planning
from rekindle.fleet.export import write
from rekindle.fleet.export.write import FREE_GB, SHELF, Exported, ExportSettings, as_yaml, exported
from rekindle.fleet.job import FleetJob, JobKind, JobState, source_names
from rekindle.fleet.planning import FleetPlan, spoken_minutes
from rekindle.model.cuda_line import CudaLine

WORKFLOW = ".github/workflows/factory.yml"
TAG = "wheels"
SITE = "site"
_LIMIT = 16 * 1024 * 1024
ORPHANS = """# The newest PyTorch for the cards that the official wheels left behind, and one row for Kepler.
# The workflow names its jobs. For another matrix: `rekindle factory init NEW --matrix matrix.toml`, and push its files.
# Linux only: a torch needs 45 GB of disk, and no hosted Windows runner has that.
project = ["torch", "torchvision", "torchaudio"]
torch = ["2.15.0"]
cuda = ["12.6"]
gpu = ["5.0;6.0;7.0"]        # Maxwell, Pascal, Volta in one wheel: their minor releases run this code, too
python = ["3.11", "3.12", "3.13"]
os = ["linux"]
profile = ["compat"]

[[include]]                  # Kepler: the last release that compiles for it
torch = "2.7.1"
cuda = "11.8"
gpu = "3.5"
"""
PROJECT = """# The wheels of this project: every combination of the lists is one.
# After a change: `rekindle factory init .`, and push.
project = [{name}]
torch = ["2.14.1"]           # an official one with code for these cards
cuda = ["12.6"]              # the line of that torch; for an RTX 50 "13.0" and "12.0"
gpu = ["6.1;7.0;7.5;8.0;8.6;9.0"]
python = ["3.11", "3.12", "3.13"]
os = ["linux"]

[projects.{name}]
source = "."
"""


class FactoryTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `rekindle factory init`."""

    schema: str = "rekindle.factory/1"
    folder: str
    files: tuple[str, ...]
    jobs: int
    rounds: int
    steps: tuple[str, ...]
    """What is left to do by hand, in order."""


def init(
    folder: Path,
    *,
    matrix: Path | None = None,
    rekindle: str | None = None,
    accept: Callable[[], bool] = lambda: False,
) -> FactoryTemplate:
    """Write the template into a new folder, or into a repository of yours; a second time it renews what it wrote.

    Refused, it writes nothing. A matrix that lies there is used where it lies, the page gets another name beside a
    README, and what you changed since is kept: the new text lies beside it. `accept` is asked whether the terms of the
    toolchains are accepted, if the runners need one.
    """
    here = folder / "matrix.toml"
    if matrix is None and here.is_file():
        matrix = here
    kept = matrix is not None and matrix.resolve() == here.resolve()
    readme = folder / "README.md"
    page = "README.md" if write.ours(readme) or not os.path.lexists(readme) else "FACTORY.md"
    wanted = ("matrix.toml", WORKFLOW, page, ".gitignore")
    _check(folder, wanted, kept)
    projects = _projects(matrix, folder) if matrix and not kept else {}
    text = codec.text_of(files.read_bytes(matrix)) if matrix else _own_matrix(folder) or ORPHANS
    plan = planning.make(matrix, one_cache=False).plan if matrix else _planned(text)
    flows = folder / WORKFLOW
    before = files.read_bytes(flows, limit=_LIMIT) if write.ours(flows) else b""
    # Where this Rekindle comes from is said once: a second run takes it from what the first one wrote.
    said = re.search(rb'^ *REKINDLE_REQUIREMENT: "?([^"\r\n]{1,300})"?\r?$', before, re.MULTILINE)
    settings = ExportSettings(
        cores=CORES, limit=350, site=True, accept_licence=True, by_hand=True, rekindle=rekindle or _again(said)
    )
    made = exported(plan, settings)
    flow = write.workflow(made, name="factory", then={"publish": _publish(settings)})
    if made.needs_toolchains and b"install --accept-licence" not in before and not accept():
        message = "the runners install CUDA by NVIDIA's terms, and nobody has accepted them"
        raise UsageError(message, hint="read docs.nvidia.com/cuda/eula, then add `--accept-licence`")
    steps = (*(() if matrix else (_PYTORCH if text is ORPHANS else _LOOK,)), *_steps(made))
    if not kept:
        files.write_text(here, text)
    for named, (source, manifest) in projects.items():
        tree.copy(source, folder / named, manifest, {})
    put = (
        _put(folder, WORKFLOW, "# {}\n", as_yaml(flow)),
        _put(folder, page, _REMARK, _readme(plan, made.rounds, steps)),
    )
    beside = [each for each in put if each]
    _ignore(folder / ".gitignore", (f"/{SHELF}/", "/fleet-work/", f"/{SITE}/"))
    steps = (*(_TAKE_OVER.format(name) for name in beside), *steps)
    return FactoryTemplate(
        folder=str(folder), files=(*wanted, *beside), jobs=len(made.jobs), rounds=made.rounds, steps=steps
    )


def _again(said: re.Match[bytes] | None) -> str | None:
    """The address in a workflow, where this Rekindle itself cannot tell one."""
    try:
        own.elsewhere()
    except UsageError:
        return said[1].decode("utf-8", "replace") if said else None
    return None


def _check(folder: Path, wanted: Sequence[str], kept: bool) -> None:
    """Nothing of others is written over, and nothing through a link."""
    for name in wanted:
        files.no_links(folder / name, folder)
    if not kept and os.path.lexists(folder / "matrix.toml"):
        message = f"`{folder / 'matrix.toml'}` already exists"
        raise UsageError(message, hint="leave `--matrix` out to use it, or name a new folder")
    if taken := [name for name in wanted[1:3] if os.path.lexists(folder / name) and not write.ours(folder / name)]:
        raise UsageError(f"`{folder / taken[0]}` already exists", hint="rename it, or name a new folder")
    ignored = folder / ".gitignore"
    if ignored.exists() and not ignored.is_file():
        raise UsageError(f"`{ignored}` is no file", hint="name a new folder")


_REMARK = "<!-- {} -->\n"
_BY = "Written by `rekindle factory init` ({}), which renews it: run it again for another matrix or a newer Rekindle."
_TAKE_OVER = "You have changed `{0}`, which stays. Take over what you want of `{0}.new`, and remove it."


def _put(folder: Path, name: str, mark: str, text: str) -> str | None:
    """Write a file of ours; beside it, and its name, where somebody has changed it since."""
    place, whole = folder / name, mark.format(_BY.format(_hash(text))) + text
    changed = False
    if place.is_file():
        head, _, rest = files.read_bytes(place, limit=_LIMIT).decode("utf-8", "replace").partition("\n")
        changed = f"({_hash(rest)})" not in head
    files.write_text(place.with_name(f"{place.name}.new") if changed else place, whole)
    return name if changed else None


def _hash(text: str) -> str:
    return hashlib.sha256(text.replace("\r\n", "\n").encode()).hexdigest()[:16]


def _ignore(path: Path, lines: Sequence[str]) -> None:
    before = files.read_bytes(path).decode("utf-8", "surrogateescape") if path.is_file() else ""
    more = [line for line in lines if line not in before.splitlines()]
    start = before if before.endswith("\n") or not before else before + "\n"
    files.write_bytes(path, (start + "".join(f"{line}\n" for line in more)).encode("utf-8", "surrogateescape"))


def _planned(text: str) -> FleetPlan:
    """No workflow names the bytes of a source: it need not lie beside."""
    with files.scratch("matrix") as folder:
        files.write_text(folder / "matrix.toml", text)
        return planning.make(folder / "matrix.toml", one_cache=False).plan


def _own_matrix(folder: Path) -> str | None:
    """The project in whose folder the factory is set up; None: there is none."""
    told: Any = None
    if (folder / "pyproject.toml").is_file():
        data = files.read_bytes(folder / "pyproject.toml", limit=_LIMIT)
        told = codec.from_toml(data, dict[str, Any], name="`pyproject.toml`").get("project")
    elif not (folder / "setup.py").is_file():
        return None
    named = told.get("name") if isinstance(told, dict) else None
    name = untrusted.checked(ProjectName, str(named or folder.resolve().name), "the project")
    return None if name == "torch" else PROJECT.format(name=json.dumps(str(name)))


_LOOK = "Look at `matrix.toml`: which torch, CUDA, cards and Pythons you want wheels for. Then run this again."
_PYTORCH = (
    "Look at `matrix.toml`: it is PyTorch itself. For a project of yours run this in its folder, where its `setup.py` "
    "or `pyproject.toml` lies."
)


def _steps(made: Exported) -> tuple[str, ...]:
    """What is left to do by hand, in order."""
    key = (
        "Make a key to sign with: `rekindle shelf key` prints the public key and says where the private one is. Put "
        "the text of that file into the secret `REKINDLE_KEY` (Settings → Secrets and variables → Actions)."
    )
    last = "Start it: Actions → factory → Run workflow."
    if made.rounds > 1:
        last += f" Each job has {made.rounds} rounds; one that needs fewer does nothing in the others."
    return (
        "Push this folder to a public repository, branch `main`.",
        "Switch its pages on: Settings → Pages → Source: GitHub Actions.",
        key,
        last,
    )


def _projects(matrix: Path, folder: Path) -> dict[Path, tuple[Path, tree.Manifest]]:
    """Projects of your own go into the repository, at the same place beside the matrix: their folders and files.

    A link is refused: it may lead to anything on this computer, and a repository is for others to read.
    """
    found = {}
    for named in matrix_file.below(matrix):
        if not named.parts:
            hint = f"in its own repository: `{rekindle('factory', 'init', str(matrix.parent))}`"
            raise UsageError(f"`{matrix}` lies in the project that it builds", hint=hint)
        if os.path.lexists(folder / named.parts[0]):
            raise UsageError(f"`{folder / named.parts[0]}` already exists", hint="name a new folder")
        files.no_links(matrix.parent / named, matrix.parent)
        source_names(matrix.parent / named)
        manifest = tree.manifest(matrix.parent / named)
        for name in manifest:
            files.no_links(matrix.parent / named / name, matrix.parent)
        found[named] = (matrix.parent / named, manifest)
    return found


def _publish(settings: ExportSettings) -> dict[str, Any]:
    """After the last round: everything that was made into a release, an index and a coverage page."""
    base = f"https://github.com/${{{{ github.repository }}}}/releases/download/{TAG}"
    words = ("factory", "publish", settings.matrix, "--shelf", SHELF, "-o", SITE, "--list", "upload.txt")
    line = rekindle(*words, "--from", ShellVariable("SITE_URL"), "--base", ShellVariable("BASE"))
    return {
        "runs-on": "ubuntu-22.04",
        "permissions": {"contents": "write", "pages": "write", "id-token": "write"},
        "environment": {"name": "github-pages", "url": "${{ steps.pages.outputs.page_url }}"},
        "steps": [
            {"uses": write.ACTIONS["checkout"]},
            {"uses": write.ACTIONS["python"], "with": {"python-version": "3.12"}},
            {
                "name": "Wheels of this run",
                "uses": write.ACTIONS["download"],
                "with": {"pattern": "wheel-*", "path": SHELF, "merge-multiple": True},
            },
            {"name": "Rekindle", "shell": "bash", "run": 'python -m pip install "$REKINDLE_REQUIREMENT"\n'},
            {
                "name": "Index and coverage",
                "shell": "bash",
                "env": {"BASE": base, **write.KEY_ENVIRONMENT},
                "run": f'{write.KEY_SCRIPT}{workflow_step(line)}\nrm -f "$RUNNER_TEMP/rekindle-key.pem"\n',
            },
            {
                "name": "Release",
                "shell": "bash",
                "env": {"GH_TOKEN": "${{ github.token }}"},
                "run": (
                    f"gh release view {TAG} || gh release create {TAG} --title Wheels --notes 'See the index.'\n"
                    f'while IFS= read -r file; do gh release upload {TAG} "$file" --clobber; done < upload.txt\n'
                ),
            },
            {"uses": "actions/configure-pages@v5"},
            {"uses": "actions/upload-pages-artifact@v3", "with": {"path": SITE}},
            {"id": "pages", "uses": "actions/deploy-pages@v4"},
        ],
    }


def _readme(plan: FleetPlan, rounds: int, steps: Sequence[str]) -> str:
    jobs = [job for job in plan.jobs if job.state is JobState.BUILD]
    names = "\n".join(f"- `{job.name}`" for job in jobs)
    projects = " ".join(dict.fromkeys(job.lock.project for job in jobs if job.lock is not None)) or "PROJECT"
    missing = "\n".join(["", "It does not build:", "", *(f"- {each}" for each in plan.left_out), ""])
    numbered = "\n".join(f"{number}. {step}" for number, step in enumerate(steps, 1))
    return f"""# A wheel factory

This repository builds {console.plural(len(jobs), "wheel")} on hosted runners and publishes them as a package index.

## What is left to do

{numbered}

Then anybody can install from it ({projects}), by a version with its label; the index shows them:

    pip install PROJECT==VERSION+LABEL --extra-index-url https://OWNER.github.io/REPOSITORY/simple/

{_example(jobs)}Without the label pip may take a newer one of the package index, which has no code for the card.

The coverage page is `https://OWNER.github.io/REPOSITORY/coverage.html`.

## What it builds

{names}
{missing if plan.left_out else ""}
What is published is not built again: the key of a job is the hash of all that decides its bytes.

## Limits of hosted runners

{arithmetic(plan, rounds)}
"""


def _example(jobs: Sequence[FleetJob]) -> str:
    """A version that this matrix gives; a project's own is not known before it is built."""
    for lock in (job.lock for job in jobs if job.lock is not None):
        version = lock.version
        if lock.kind is JobKind.TORCH and lock.cuda:
            targets = ".".join(str(target).replace("_", "") for target in lock.targets)
            version = f"{lock.torch}+{CudaLine(Version(lock.cuda)).name}.{targets}"
        if version:
            return f"For example `{lock.project}=={version}`. "
    return ""


CORES = 4
_CLEANED_GB = 75
_LIMITS = f"""A standard runner has {CORES} cores, 16 GB of memory, {FREE_GB} GB of free disk (about {_CLEANED_GB} \
GB once its preinstalled software is removed), 360 minutes per job; 20 jobs run at once; 10 GB of cache per \
repository; 2 GiB per file of a release. These are GitHub's published figures; none of it was tried by us: UNVERIFIED.
"""


def arithmetic(plan: FleetPlan, rounds: int) -> str:
    """GitHub's standard runners, public repositories. UNVERIFIED: nobody has pressed this button yet."""
    jobs = [job for job in plan.jobs if job.state is JobState.BUILD]
    torch = [job for job in jobs if job.lock and job.lock.kind is JobKind.TORCH and job.estimate.minutes]
    lines = [_LIMITS, *(_line(job) for job in sorted(torch, key=lambda job: -(job.estimate.minutes or 0))[:6])]
    disk = max((job.estimate.disk_gb for job in jobs), default=0.0)
    windows = max((job.estimate.disk_gb for job in jobs if job.lock and job.lock.system == "windows"), default=0.0)
    if windows > FREE_GB:
        lines.append(
            f"- Windows: the largest job takes {windows:.0f} GB, and nothing is removed there: it does not fit. Write "
            "the workflow for larger runners: `rekindle fleet export github --runner windows-x86_64=LABEL`."
        )
    if disk > FREE_GB:
        fits = "fits once the workflow has removed what it does not need (Linux)"
        after = fits if disk <= _CLEANED_GB else "does not fit after cleaning either"
        lines.append(f"- Disk: the largest job takes {disk:.0f} GB. A runner has {FREE_GB} GB free: it {after}.")
    if torch:
        total = spoken_minutes(round(sum(job.estimate.minutes or 0 for job in jobs) * 8 / CORES))
        cache = (
            f"- Cache: a build's ccache is 1 to 3 GB; {len(torch)} torch jobs share 10 GB, so the oldest are dropped. "
        )
        cache += "A job that lost its cache starts anew: run the workflow again, or pass a Redis with `--cache`."
        lines += [f"- All together {total} on runners, 20 at a time: the longest decides.", cache]
    return "\n".join([*lines, f"- Rounds: {rounds}, from the estimates for {CORES} cores and 310 minutes each."])


def _line(job: FleetJob) -> str:
    minutes = (job.estimate.minutes or 0) * 8 / CORES
    return (
        f"- `{job.name}`: about {spoken_minutes(round(minutes))} on {CORES} cores "
        f"({spoken_minutes(job.estimate.minutes or 0)} on eight): {minutes / 310:.1f} rounds of 310 minutes"
    )
