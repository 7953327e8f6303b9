"""`rekindle fleet export`: the file of one format, with where it belongs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from rekindle.core import files
from rekindle.core.errors import UsageError
from rekindle.fleet.export import github, gitlab, slurm
from rekindle.fleet.export.workflow import Exported, notes

_HEAD = "# Written by `rekindle fleet export {form}`; write it again when the matrix changes.\n"
PLACES = {"github": ".github/workflows/fleet.yml", "gitlab": ".gitlab-ci.yml", "slurm": "fleet.sbatch"}


class FleetExport(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `rekindle fleet export`."""

    schema: str = "rekindle.fleet-export/1"
    form: str
    file: str
    jobs: int
    rounds: int


def write(form: str, exported: Exported, output: Path | None) -> FleetExport:
    place = output or Path(PLACES[form])
    if place.exists() and not _ours(place):
        message = f"`{place}` is there already and was not written by Rekindle"
        raise UsageError(message, hint="name another file with `-o`")
    files.write_text(place, text(form, exported))
    return FleetExport(form=form, file=str(place), jobs=len(exported.jobs), rounds=exported.rounds)


def text(form: str, exported: Exported) -> str:
    if form == "slurm":
        return slurm.script(exported)
    made: dict[str, Callable[[Exported], dict[str, Any]]] = {"github": github.workflow, "gitlab": gitlab.pipeline}
    return _HEAD.format(form=form) + notes(exported) + as_yaml(made[form](exported))


def as_yaml(value: dict[str, Any]) -> str:
    import yaml

    class Lines(yaml.SafeDumper):
        """Scripts of several lines as blocks, as a person writes them."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def represent(dumper: Any, data: str) -> Any:
        return dumper.represent_scalar("tag:yaml.org,2002:str", data, style="|" if "\n" in data else None)

    Lines.add_representer(str, represent)
    # `on` would be read as true by a YAML 1.1 parser, and is quoted by PyYAML for that reason.
    return yaml.dump(value, Dumper=Lines, sort_keys=False, width=1000, default_flow_style=False)


def _ours(path: Path) -> bool:
    return b"Written by `rekindle" in files.read_bytes(path, limit=16 * 1024 * 1024)[:400]
