"""The end of a build: its wheel on the shelf, the very file, with a signed statement of how it was made."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path

import pytest

from rekindle.build.configure.request import BuildRequest, Compiler
from rekindle.build.run import steps
from rekindle.core.findings import State
from rekindle.core.version import Version
from rekindle.wheels.shelf import health, shelf, store
from rekindle.wheels.verify.signed_report import signature_beside
from rekindle.wheels.verify.verify import report_beside
from support import torch_like
from support.shelves import pure_wheel


def _request(**more: object) -> BuildRequest:
    compiler = Compiler(kind="gcc", cxx="/home/lovelace/bin/g++", c="gcc", cuda_host="g++", version=Version("11.4"))
    return BuildRequest(
        source="/home/lovelace/pytorch", system="linux", arch="x86_64", python=sys.executable, compiler=compiler, **more
    )  # type: ignore[arg-type]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REKINDLE_SHELF", str(tmp_path / "shelf"))
    return tmp_path / "shelf"


def _statement(root: Path, file: str) -> dict[str, object]:
    envelope = json.loads((root / "wheels" / f"{file}{store.STATEMENT}").read_text(encoding="utf-8"))
    found: dict[str, object] = json.loads(base64.b64decode(envelope["payload"]))["predicate"]
    return found


def test_the_very_wheel_lies_on_the_shelf_with_how_it_was_built(root: Path, tmp_path: Path) -> None:
    wheel = torch_like.wheel(
        tmp_path / "out",
        project="ember",
        version="1.0",
        libraries={"ember/kernels.fatbin": (("sm_75",),)},
        tag="cp311-cp311-linux_x86_64",
    )
    request = _request(name="ember", arch_list="7.5", options={"USE_X": "ON"})
    assert steps.verified(request, wheel).state is not State.FAIL
    assert signature_beside(report_beside(wheel)).is_file()
    assert steps.shelved(request, wheel, {"a-patch": "c" * 64}) == root
    assert (root / "wheels" / wheel.name).read_bytes() == wheel.read_bytes()
    said = _statement(root, wheel.name)
    definition = said["buildDefinition"]
    assert isinstance(definition, dict)
    assert definition["externalParameters"]["options"] == {"USE_X": "ON"}
    assert {"name": "a-patch", "digest": {"sha256": "c" * 64}} in definition["resolvedDependencies"]
    assert definition["internalParameters"]["tools"]["compiler"] == "gcc 11.4"
    assert "lovelace" not in json.dumps(said)
    assert health.check(root, signed=True).state is State.PASS


def test_the_commit_of_pytorch_is_stated() -> None:
    facts = steps.facts_of(_request(torch="2.7.1", commit="d" * 40))
    assert facts.sources == {"git+https://github.com/pytorch/pytorch": "d" * 40}


def test_a_second_build_of_the_name_keeps_the_first(root: Path, tmp_path: Path) -> None:
    first, second = pure_wheel(tmp_path / "a"), pure_wheel(tmp_path / "b", body="# again\n")
    for wheel in (first, first, second):
        steps.shelved(_request(name="demo"), wheel)
    assert len(shelf.entries(root)) == 1
    assert (root / "wheels" / second.name).read_bytes() == second.read_bytes()
    kept = [path.read_bytes() for path in (root / "replaced").glob("*/*.whl")]
    assert kept == [first.read_bytes()]
