"""Builds the extensions people ask for most with `rekindle extension build`, inspects each wheel and writes the table.

    python -m tools.extension_table build --env /usr/bin/python3 --gpu "GTX 1080 Ti" --sources DIR --results FILE
    python -m tools.extension_table write --results FILE          writes docs/builds/extensions.md

`build` runs the installed `rekindle` and appends a line of JSON for each extension; one that is in FILE already is not
built again, so a stopped run goes on. DIR holds the source of projects that have no sdist, in folders of their names.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

PAGE = Path(__file__).resolve().parents[1] / "docs" / "builds" / "extensions.md"
_LIMIT = 2400.0
_GPU = "GTX 1080 Ti"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """One of the list. `after` must be installed first; `folder` where the index has no sdist."""

    name: str
    requirement: str
    asked_by: str
    folder: bool = False
    after: tuple[str, ...] = ()
    gpu: str = ""
    """The card it is built for where its own list leaves the usual one out."""

    def command(self, gpu: str) -> str:
        what = f"./{self.name}" if self.folder else f"{self.requirement} --from-source"
        return f'rekindle extension build {what} --gpu "{gpu}"'


# In the order of building: small ones first, and each after what it needs.
LIST = (
    Wanted(name="sam2", requirement="sam2==1.1.0", asked_by="SAM 2, ComfyUI segmentation"),
    Wanted(name="torchsort", requirement="torchsort==0.1.9", asked_by="ranking losses"),
    Wanted(name="chamferdist", requirement="chamferdist==1.0.3", asked_by="point clouds"),
    Wanted(name="rotary-emb", requirement="rotary-emb==0.5.2", gpu="V100", asked_by="language models"),
    Wanted(
        name="spatial-correlation-sampler",
        requirement="spatial-correlation-sampler==0.5.0",
        asked_by="optical flow",
    ),
    Wanted(
        name="torch-linear-assignment",
        requirement="torch-linear-assignment==0.0.6",
        asked_by="detection and tracking losses",
    ),
    Wanted(name="nerfacc", requirement="nerfacc==0.5.3", asked_by="NeRF"),
    Wanted(name="torch-spline-conv", requirement="torch-spline-conv==1.2.2", asked_by="PyTorch Geometric"),
    Wanted(name="torch-scatter", requirement="torch-scatter==2.1.2", asked_by="PyTorch Geometric, ComfyUI 3D packs"),
    Wanted(name="exllamav2", requirement="exllamav2==0.0.4", asked_by="text-generation-webui"),
    Wanted(name="torch-cluster", requirement="torch-cluster==1.6.3", asked_by="PyTorch Geometric"),
    Wanted(
        name="torch-sparse",
        requirement="torch-sparse==0.6.18",
        after=("torch-scatter",),
        asked_by="PyTorch Geometric",
    ),
    Wanted(name="causal-conv1d", requirement="causal-conv1d==1.5.2", gpu="V100", asked_by="Mamba"),
    Wanted(
        name="mamba-ssm",
        requirement="mamba-ssm==2.3.1",
        gpu="V100",
        after=("causal-conv1d",),
        asked_by="Mamba",
    ),
    Wanted(name="flash-attn", requirement="flash-attn==2.8.3", asked_by="language models"),
    Wanted(name="gsplat", requirement="gsplat==1.5.3", asked_by="nerfstudio"),
    Wanted(name="xformers", requirement="xformers==0.0.29.post3", asked_by="Stable Diffusion"),
    Wanted(name="torchvision", requirement="torchvision==0.21.0", asked_by="nearly everybody"),
    Wanted(name="fused-ssim", requirement="fused-ssim", folder=True, asked_by="Gaussian splatting"),
    Wanted(name="simple-knn", requirement="simple-knn", folder=True, asked_by="Gaussian splatting"),
    Wanted(name="nvdiffrast", requirement="nvdiffrast", folder=True, asked_by="TRELLIS, Hunyuan3D, ComfyUI 3D packs"),
    Wanted(name="detectron2", requirement="detectron2", folder=True, after=("torchvision",), asked_by="LayoutParser"),
    Wanted(name="pytorch3d", requirement="pytorch3d", folder=True, asked_by="3D research"),
)


class Built(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one. `wheel` None: nothing was built, and `why` says the reason."""

    name: str
    command: str
    gpu: str
    torch: str
    cuda: str | None
    python: str
    processor: str
    seconds: float
    code: int
    wheel: str | None
    targets: dict[str, int]
    inspected: str
    imported: str = ""
    """What the import with the torch of the environment gave; empty when it was not tried."""
    arch_list: str = ""
    variables: dict[str, str] = {}
    """Those of the shell that the build read."""
    refused: bool = False
    """Turned down before the first compiler started."""
    why: str = ""

    @property
    def serves(self) -> bool:
        """A wheel alone is not enough: some projects leave their GPU code out when it does not compile."""
        return self.wheel is not None and self.inspected == "SERVES" and self.code == 0


def _answered(words: list[str]) -> tuple[int, dict[str, Any], str]:
    try:
        done = subprocess.run(words, check=False, capture_output=True, encoding="utf-8", timeout=_LIMIT)
    except subprocess.TimeoutExpired:
        return 124, {}, f"stopped after {_LIMIT / 60:.0f} minutes"
    try:
        return done.returncode, json.loads(done.stdout), done.stderr
    except ValueError:
        return done.returncode, {}, done.stderr


def build(wanted: Wanted, options: argparse.Namespace) -> Built:
    project = str(Path(options.sources, wanted.name)) if wanted.folder else wanted.requirement
    gpu = wanted.gpu or options.gpu
    with tempfile.TemporaryDirectory() as folder:
        words = ["extension", "build", project, "--env", options.env, "--gpu", gpu, "-o", folder, "--json"]
        words += [] if wanted.folder else ["--from-source"]
        words += ["--mirror", options.mirror] if options.mirror and wanted.name == "torchvision" else []
        begun = time.monotonic()
        code, answer, said = _answered([*options.rekindle, *words])
        seconds = time.monotonic() - begun
        wheel = next(iter(sorted(Path(folder).glob("*.whl"))), None)
        inspected, targets = _inspected(wheel, gpu, options) if wheel else ("", {})
        if wheel and options.keep:
            Path(options.keep).mkdir(parents=True, exist_ok=True)
            Path(options.keep, wheel.name).write_bytes(wheel.read_bytes())
        if options.keep and (log := Path(folder, "extension-build.log")).is_file():
            Path(options.keep).mkdir(parents=True, exist_ok=True)
            Path(options.keep, f"{wanted.name}.log").write_bytes(log.read_bytes())
        if wheel and options.install and code == 0:
            words = ["-m", "pip", "install", "-q", "--no-deps", "--break-system-packages", str(wheel)]
            subprocess.run([options.env, *words], check=True)
    facts = json.loads(subprocess.run([options.env, "-c", _FACTS], capture_output=True, text=True, check=True).stdout)
    return Built(
        name=wanted.name,
        command=wanted.command(gpu),
        gpu=gpu,
        **facts,
        seconds=round(seconds, 1),
        code=code,
        wheel=wheel.name if wheel else None,
        targets=targets,
        inspected=inspected,
        imported=next((each["state"] for each in answer.get("findings", ()) if each["id"] == "extension.import"), ""),
        arch_list=answer.get("arch_list", ""),
        variables={name: os.environ[name] for name in _VARIABLES if name in os.environ},
        refused=wheel is None and bool(answer.get("findings")),
        why="" if wheel and code == 0 else _reason(answer, said),
    )


_VARIABLES = ("CFLAGS", "CXXFLAGS", "FORCE_ONLY_CUDA", "MAX_JOBS")
_FACTS = (
    "import json, platform, torch; print(json.dumps({'torch': torch.__version__, 'cuda': torch.version.cuda, "
    "'python': platform.python_version(), 'processor': platform.machine()}))"
)


def _inspected(wheel: Path, gpu: str, options: argparse.Namespace) -> tuple[str, dict[str, int]]:
    _, answer, said = _answered([*options.rekindle, "inspect", str(wheel), "--gpu", gpu, "--json"])
    for card in answer.get("cards", ()):
        return str(card["coverage"]), answer["targets"]
    return said.strip()[:200] or "no GPU code", answer.get("targets", {})


def _reason(answer: dict[str, Any], said: str) -> str:
    failed = [each["found"] for each in answer.get("findings", ()) if each["state"] == "FAIL"]
    return "; ".join(failed) or str(answer.get("message", "")) or said.strip()[-300:]


def _read(results: Path) -> list[Built]:
    lines = results.read_text(encoding="utf-8").splitlines() if results.is_file() else []
    return [msgspec.json.decode(line, type=Built) for line in lines if line.strip()]


def _build(options: argparse.Namespace) -> int:
    results = Path(options.results)
    done = {each.name for each in _read(results)}
    for wanted in LIST:
        if wanted.name in done or (options.only and wanted.name not in options.only):
            continue
        print(f"building {wanted.name}", flush=True)
        built = build(wanted, options)
        with results.open("a", encoding="utf-8") as file:
            file.write(msgspec.json.encode(built).decode() + "\n")
        print(f"  {built.wheel or built.why} in {built.seconds} s: {built.inspected} {built.targets}", flush=True)
    return 0


def _write(options: argparse.Namespace) -> int:
    PAGE.write_text(page(_read(Path(options.results)), options.note), encoding="utf-8")
    print(f"wrote {PAGE.name}")
    return 0


def page(results: list[Built], note: str = "") -> str:
    """The table as Markdown. `note` is what else was done to the machine."""
    known = {each.name: each for each in results}
    built = [each for each in results if each.serves]
    lines = [
        "# Extensions for an old card, built and inspected",
        "",
        *(_about(results[0]) if results else ("No extension of this list was built yet: every row is UNVERIFIED.",)),
        *(("", note) if note else ()),
        "",
        f"{len(built)} of {len(LIST)} were built. Install them in this order: what another needs stands above it.",
        "",
        "| extension | asked for by | needs first | command | seconds | result |",
        "|---|---|---|---|---:|---|",
    ]
    for wanted in LIST:
        each = known.get(wanted.name)
        lines.append(
            f"| {wanted.name} | {wanted.asked_by} | {', '.join(wanted.after) or '-'} | "
            f"`{each.command if each else wanted.command(wanted.gpu or _GPU)}` | "
            f"{f'{each.seconds:.0f}' if each else '-'} | {_result(each)} |"
        )
    return "\n".join([*lines, "", _FOOT, ""])


def _about(first: Built) -> tuple[str, ...]:
    return (
        f"Built with `rekindle extension build` for a {first.gpu}: a card below compute capability 7.5, which CUDA 13",
        f"does not serve. torch {first.torch} with CUDA {first.cuda}, Python {first.python} on {first.processor},",
        "no GPU. The seconds are wall time on two cores that others used as well. *Inspect* is",
        "what `rekindle inspect` reads off the wheel, *import* whether it imports with that torch; nothing was run",
        "on the card: UNVERIFIED.",
        *_set_before(first.variables),
    )


def _set_before(variables: dict[str, str]) -> tuple[str, ...]:
    """What was in the shell besides: without it the builds take longer, or make more."""
    if not variables:
        return ()
    listed = ", ".join(f"`{name}={value}`" for name, value in variables.items())
    return (
        "",
        f"In the shell: {listed} (one compiler at a time;",
        "for the CPU no debug information, little optimization, no second module).",
    )


_FOOT = """Projects without an sdist on the index (fused-ssim, simple-knn, nvdiffrast, detectron2, pytorch3d) are built
from a folder with their source. The `simple-knn` of the index is another project.

Made with `python -m tools.extension_table build --env PYTHON --results FILE --install`, one extension at a time, and
`python -m tools.extension_table write --results FILE`. `extensions.jsonl` beside this page is that file."""


def _result(each: Built | None) -> str:
    if each is None:
        return "not built here, UNVERIFIED"
    why = " ".join(each.why.split()).replace("|", "/")[:300]
    if each.refused:
        return f"refused: {why}"
    if each.serves:
        code = ", ".join(f"{count} × {target}" for target, count in sorted(each.targets.items()))
        return f"built; inspect: {each.inspected}, {code}; import: {each.imported or 'UNVERIFIED'}"
    return f"failed: {why}" if each.wheel is None else f"a wheel that does not pass: {why}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["build", "write"])
    parser.add_argument("--results", required=True)
    parser.add_argument("--env", help="the Python that has the torch")
    parser.add_argument("--gpu", default=_GPU)
    parser.add_argument("--sources", default=".", help="a folder with the sources of projects without an sdist")
    parser.add_argument("--mirror", help="a folder of repositories, for torchvision")
    parser.add_argument("--keep", help="where the wheels are kept")
    parser.add_argument("--install", action="store_true", help="install each wheel: those below it may need it")
    parser.add_argument("--note", default="", help="what was done to the machine before, for the page")
    parser.add_argument("--only", action="append", help="this extension only; may be repeated")
    parser.add_argument("--rekindle", nargs="+", default=["rekindle"], help="the command to run")
    options = parser.parse_args(arguments)
    return _build(options) if options.verb == "build" else _write(options)


if __name__ == "__main__":
    sys.exit(main())
