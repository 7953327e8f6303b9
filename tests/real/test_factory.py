"""A factory from its template to pip: a valid workflow, one small cell built, published, served and installed."""

from __future__ import annotations

import functools
import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from rekindle.core.errors import ChecksFailed
from rekindle.fleet.factory import site as sites
from rekindle.fleet.factory.template import WORKFLOW
from support.command import rekindle_command
from support.fleets import ROOT, pebble
from support.workflows import run_as_a_runner, schema


def test_the_template_for_the_orphans_is_a_valid_workflow(tmp_path: Path) -> None:
    seen = rekindle_command("factory", "init", str(tmp_path / "f"), "--json", "--accept-licence", "--rekindle", "x")
    assert seen.code == 0, seen.err
    assert seen.json()["jobs"] == 3 * 2 * 3, "three projects, two rows, three Pythons"
    made = yaml.safe_load((tmp_path / "f" / WORKFLOW).read_text(encoding="utf-8"))
    jsonschema_rs.validate(schema("github-workflows"), made)
    rounds = [name for name in made["jobs"] if name.startswith("build-round")]
    assert len(rounds) >= 2, "a torch does not fit into six hours of four cores"
    assert made["jobs"]["publish"]["needs"] == [list(made["jobs"])[-2]]
    for job in made["jobs"].values():
        names = [each["key"] for each in job.get("strategy", {}).get("matrix", {}).get("include", [])]
        assert len(names) == len(set(names)) <= 256 and job.get("timeout-minutes", 0) <= 360
    text = (tmp_path / "f" / "README.md").read_text(encoding="utf-8")
    assert "UNVERIFIED" in text and "rounds of 310 minutes" in text and "GB" in text
    assert rekindle_command("factory", "init", str(tmp_path / "f"), "--rekindle", "x").code == 0, "it is renewed"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder and the address at which it is served, as a page host serves it."""
    folder = tmp_path / "www"
    folder.mkdir()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield folder, f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def publish(repository: Path, shelf: Path, www: Path, address: str) -> dict[str, Any]:
    """What the job `publish` does: index and coverage to the pages, wheels to the release."""
    words = ["factory", "publish", str(repository / "matrix.toml"), "--shelf", str(shelf), "-o", str(www / "site")]
    words += ["--from", f"{address}/site", "--base", f"{address}/release", "--json"]
    seen = rekindle_command(*words)
    assert seen.code == 0, seen.err
    made: dict[str, Any] = seen.json()
    (www / "release").mkdir(exist_ok=True)
    for name in made["upload"]:
        (www / "release" / Path(name).name).write_bytes(Path(name).read_bytes())
    return made


@pytest.mark.long
@pytest.mark.parametrize("own", [False, True])
def test_a_small_cell_is_built_published_served_and_installed_and_not_built_again(
    tmp_path: Path, served: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    """In a repository of its own, and in that of the project."""
    www, address = served
    arch = os.uname().machine
    lines = pebble(tmp_path, "pebble")
    repository = tmp_path / ("pebble" if own else "factory")
    matrix = tmp_path / ("pebble/matrix.toml" if own else "small.toml")
    lines = lines.replace('"pebble/', '"') if own else lines
    matrix.write_text(f'project = "pebble"\ncuda = "cpu"\narch = "{arch}"\n{lines}', encoding="utf-8")
    monkeypatch.setenv("REKINDLE_KEY", str(tmp_path / "key.pem"))
    seen = rekindle_command("factory", "init", str(repository), "--matrix", str(matrix), "--rekindle", f"file://{ROOT}")
    assert seen.code == 0, seen.err
    with (next(path for path in repository.rglob("CMakeLists.txt"))).open("a", encoding="utf-8") as stream:
        stream.write("# a commit after it\n")
    flow = yaml.safe_load((repository / WORKFLOW).read_text(encoding="utf-8"))
    first = next(iter(flow["jobs"].values()))
    (entry,) = first["strategy"]["matrix"]["include"]
    temp = tmp_path / "temp"
    subprocess.run([sys.executable, "-m", "venv", "--system-site-packages", str(temp)], check=True)
    monkeypatch.setenv("SITE_URL", f"{address}/site")
    assert run_as_a_runner(first["steps"], entry, repository, temp) == ["Compiler cache", "Rekindle", "Build"]
    made = publish(repository, repository / "shelf", www, address)
    assert made["coverage"] == {"there": 1} and len(made["upload"]) == 2

    environment = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "--no-deps", "--index-url"]
    done = subprocess.run([*pip, f"{address}/site/simple/", "pebble"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    check = [
        str(environment / "bin" / "python"),
        "-c",
        "import pebble, pathlib; print(*pathlib.Path(pebble.__file__).parent.glob('lib/*.so'))",
    ]
    assert "libpebble.so" in subprocess.run(check, capture_output=True, text=True, check=True).stdout

    words = ["fleet", "job", str(repository / "matrix.toml"), entry["key"], "--from", f"{address}/site"]
    again = rekindle_command(*words, "--shelf", str(tmp_path / "fresh"), "--work", str(tmp_path / "w"), "--json")
    assert again.json()["state"] == "kept", "a fresh runner builds nothing that is published"
    assert not (tmp_path / "w").exists()
    before = (www / "site" / "shelf.json").read_text(encoding="utf-8")
    assert publish(repository, tmp_path / "fresh", www, address)["upload"] == []
    assert json.loads((www / "site" / "shelf.json").read_text(encoding="utf-8")) == json.loads(before)
    page = (www / "site" / "coverage.html").read_text(encoding="utf-8")
    assert f"{address}/release/pebble-1.0%2Bcpu-py3-none-linux_{arch}.whl" in page

    wheel = next((repository / "shelf" / "wheels").glob("*.whl"))
    wheel.write_bytes(wheel.read_bytes() + b"x")
    from rekindle.fleet import planning

    with pytest.raises(ChecksFailed, match="is not the file"):
        sites.publish(repository / "shelf", tmp_path / "s", planning.make(matrix).plan, base="https://x")
