"""Writes the JSON Schema of every verb's `--json` answer to `src/rekindle/schemas/`.

A verb's answer is a struct whose first field is `schema`, as `rekindle.<verb>/<number>`. All of them are found by
importing the package, so a new verb needs no entry here. `--check` only says whether the committed files are current.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from pathlib import Path
from typing import Any

import msgspec

import rekindle
from rekindle.core import codec, console

_NO_ANSWERS = "rekindle.web.assistant"
"""Needs the extra `mcp`, and answers with what others have defined."""
SCHEMAS = Path(rekindle.__file__).parent / "schemas"


def answers() -> dict[str, Any]:
    """Schema name -> the struct of that answer."""
    for module in pkgutil.walk_packages(rekindle.__path__, "rekindle."):
        if not module.name.endswith("__main__") and module.name != _NO_ANSWERS:
            importlib.import_module(module.name)
    found: dict[str, Any] = {}
    waiting: list[type[msgspec.Struct]] = [msgspec.Struct]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        fields = {field.name: field for field in msgspec.structs.fields(kind)}
        default = fields["schema"].default if "schema" in fields else None
        if isinstance(default, str) and default.startswith("rekindle."):
            found[default] = kind
    return dict(sorted(found.items()))


def render(name: str, kind: Any) -> str:
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": name, **codec.schema(kind)}
    return json.dumps(schema, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def file_of(name: str) -> Path:
    return SCHEMAS / (name.removeprefix("rekindle.").replace("/", "-") + ".json")


def main() -> int:
    stale = []
    SCHEMAS.mkdir(exist_ok=True)
    for name, kind in answers().items():
        text = render(name, kind)
        if not file_of(name).exists() or file_of(name).read_text(encoding="utf-8") != text:
            stale.append(file_of(name).name)
            if "--check" not in sys.argv:
                file_of(name).write_text(text, encoding="utf-8", newline="\n")
    print(f"{console.plural(len(stale), 'schema')} {'out of date' if '--check' in sys.argv else 'written'}", *stale)
    return int(bool(stale) and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
