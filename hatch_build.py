"""Puts the JSON of every TOML table into the wheel, which is read ten times as fast."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


class Tables(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        self._made = tempfile.TemporaryDirectory()
        for table in sorted(Path(self.root, "src", "rekindle", "knowledge").glob("*/*.toml")):
            packed = Path(self._made.name, f"{table.parent.name}-{table.name}")
            text = json.dumps(tomllib.loads(table.read_text(encoding="utf-8")), default=str, separators=(",", ":"))
            packed.write_text(text, encoding="utf-8", newline="\n")
            build_data["force_include"][str(packed)] = f"rekindle/knowledge/{table.parent.name}/{table.stem}.toml-json"
