from __future__ import annotations

import hashlib
import html.parser
import json
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from rekindle.core import codec
from rekindle.core.findings import State
from rekindle.core.version import Version
from rekindle.knowledge.gpu.capability import Target
from rekindle.knowledge.gpu.gpu_code import GpuCode
from rekindle.stack.rules import RouteKind
from rekindle.wheels.shelf import serve, shelf
from rekindle.wheels.verify.verify import Verification, report_beside
from support import small_wheels
from support.command import rekindle_command


def _verified(folder: Path, project: str = "demo", version: str = "1.0", state: State = State.PASS) -> Path:
    """A pure wheel that any Python can install, with a report as `verify` would write it."""
    info = f"{project}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\nRequires-Python: >=3.8\n"
    files = {
        f"{project}_package/__init__.py": f"version = {version!r}\n".encode(),
        f"{info}/METADATA": metadata.encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    wheel = small_wheels.make(folder, files, name=f"{project}-{version}-py3-none-any.whl")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    report = Verification(subject=wheel.name, kind="wheel", sha256=digest, state=state)
    report_beside(wheel).write_text(codec.to_json(report), encoding="utf-8")
    return wheel


class _Links(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.found.append(dict(attrs))


def _links(page: Path) -> list[dict[str, str | None]]:
    parser = _Links()
    parser.feed(page.read_text(encoding="utf-8"))
    return parser.found


def test_added_wheels_are_on_every_page(tmp_path: Path) -> None:
    wheel = _verified(tmp_path / "in")
    seen = rekindle_command("shelf", "add", str(wheel), "--shelf", str(tmp_path / "shelf"), "--json")
    assert seen.code == 0, seen.err
    assert [entry["file"] for entry in seen.json()["wheels"]] == [wheel.name]
    root = tmp_path / "shelf"
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    link = _links(root / "simple/demo/index.html")[0]
    assert link["href"] == f"../../wheels/{wheel.name}#sha256={digest}"
    assert link["data-requires-python"] == ">=3.8"
    metadata = (root / "wheels" / f"{wheel.name}.metadata").read_bytes()
    assert link["data-core-metadata"] == f"sha256={hashlib.sha256(metadata).hexdigest()}"
    answer = json.loads((root / "simple/demo/index.json").read_text(encoding="utf-8"))
    assert answer["files"][0]["hashes"] == {"sha256": digest}
    assert answer["versions"] == ["1.0"]
    assert wheel.name in (root / "index.html").read_text(encoding="utf-8")
    assert (root / "wheels" / f"{wheel.name}.verify.json").is_file()


def test_a_wheel_without_a_good_report_of_itself_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "shelf"
    unverified = _verified(tmp_path / "a")
    report_beside(unverified).unlink()
    failed = _verified(tmp_path / "b", state=State.FAIL)
    changed = _verified(tmp_path / "c")
    changed.write_bytes(small_wheels.make(tmp_path / "d").read_bytes())
    broken = _verified(tmp_path / "e")
    report_beside(broken).write_text("{", encoding="utf-8")
    for wheel, code in ((unverified, 14), (failed, 8), (broken, 4)):
        assert rekindle_command("shelf", "add", str(wheel), "--shelf", str(root)).code == code, wheel
    seen = rekindle_command("shelf", "add", str(changed), "--shelf", str(root))
    assert seen.code == 4
    assert "hint:" in seen.err
    assert not list(root.glob("wheels/*"))


def test_what_could_not_be_checked_may_be_shelved_and_says_so(tmp_path: Path) -> None:
    wheel = _verified(tmp_path / "in", state=State.UNVERIFIED)
    rekindle_command("shelf", "add", str(wheel), "--shelf", str(tmp_path / "shelf"))
    assert "UNVERIFIED" in rekindle_command("shelf", "list", "--shelf", str(tmp_path / "shelf")).out


def test_pip_installs_from_the_folder_and_from_the_server(tmp_path: Path, served: str) -> None:
    for number, index in enumerate(((tmp_path / "shelf" / "simple").as_uri(), f"{served}/simple/")):
        target = tmp_path / f"site{number}"
        command = [
            sys.executable, "-m", "pip", "install", "-q", "--isolated", "--disable-pip-version-check", "--no-deps",
            "--no-cache-dir", "--index-url", index, "--target", str(target), "demo==1.0",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        assert (target / "demo_package/__init__.py").is_file()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    shelf.add(tmp_path / "shelf", [_verified(tmp_path / "in")])
    (tmp_path / "secret.txt").write_text("secret", encoding="utf-8")
    server = serve.server(tmp_path / "shelf", "127.0.0.1", 0)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def _get(address: str, accept: str = "*/*", method: str = "GET") -> tuple[int, str, bytes]:
    request = urllib.request.Request(address, headers={"Accept": accept}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, "", b""


def test_the_server_speaks_both_dialects_and_nothing_else(served: str) -> None:
    kind = "application/vnd.pypi.simple.v1+json"
    status, said, body = _get(f"{served}/simple/demo/", kind)
    assert (status, said) == (200, kind)
    assert json.loads(body)["name"] == "demo"
    assert _get(f"{served}/simple/demo/")[1].startswith("text/html")
    assert json.loads(_get(f"{served}/simple/", kind)[2])["projects"] == [{"name": "demo"}]
    for path in ("/../secret.txt", "/%2e%2e/secret.txt", "/wheels/", "/.lock", "/simple/demo/..%5c..%5csecret.txt"):
        assert _get(served + path)[0] == 404, path
    for method in ("POST", "PUT", "DELETE"):
        assert _get(f"{served}/simple/demo/", method=method)[0] == 501


def test_adds_at_the_same_time_all_arrive(tmp_path: Path) -> None:
    wheels = [_verified(tmp_path / "in", version=f"1.{n}") for n in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda wheel: shelf.add(tmp_path / "shelf", [wheel]), wheels))
    assert len(_links(tmp_path / "shelf/simple/demo/index.html")) == 8
    assert [entry.version for entry in shelf.entries(tmp_path / "shelf")] == [f"1.{n}" for n in reversed(range(8))]


def test_prune_keeps_the_newest_of_each_kind(tmp_path: Path) -> None:
    root = tmp_path / "shelf"
    shelf.add(root, [_verified(tmp_path / "in", version=v) for v in ("1.9", "1.10", "1.8")])
    shelf.add(root, [_verified(tmp_path / "in", project="other")])
    dry = rekindle_command("shelf", "prune", "--shelf", str(root), "--dry-run")
    assert "1.9" in dry.out and len(shelf.entries(root)) == 4
    seen = rekindle_command("shelf", "prune", "--shelf", str(root), "--json").json()
    assert sorted(seen["removed"]) == ["demo-1.8-py3-none-any.whl", "demo-1.9-py3-none-any.whl"]
    assert {path.name for path in (root / "wheels").glob("*.whl")} == {
        "demo-1.10-py3-none-any.whl",
        "other-1.0-py3-none-any.whl",
    }
    assert len(_links(root / "simple/demo/index.html")) == 1


def test_find_export_and_offers_go_by_the_code_inside(tmp_path: Path) -> None:
    root = tmp_path / "shelf"
    shelf.add(root, [_verified(tmp_path / "in")])
    targets = [(Target.parse(name), None) for name in ("sm_35", "sm_61", "compute_61")]
    code = GpuCode.of("torch/lib/torch_cuda.dll", [targets, targets])
    entry = msgspec.structs.replace(
        shelf.entries(root)[0],
        file="torch-2.7.1+cu118-cp311-cp311-win_amd64.whl", project="torch", version="2.7.1+cu118",
        cuda=Version("11.8"), tags=("cp311-cp311-win_amd64",), code=(code,),
    )  # fmt: skip
    place = root / "wheels" / f"{entry.file}.shelf.json"
    place.write_text(codec.to_json(entry), encoding="utf-8")
    find = ("shelf", "find", "--shelf", str(root))
    assert [one["file"] for one in rekindle_command(*find, "--gpu", "Tesla K40c", "--json").json()["wheels"]] == [
        entry.file
    ]
    assert rekindle_command(*find, "--gpu", "sm_30").code == 5
    offer = shelf.offers(root).offers[0]
    assert (offer.route, offer.torch, offer.variant, str(offer.cuda)) == (RouteKind.SHELF, "2.7.1", "cu118", "11.8")
    assert (offer.system, offer.machine, offer.pythons) == ("windows", "x86_64", ("3.11",))
    assert offer.location == str(root / "wheels" / entry.file)
    card = ("--gpu", "Tesla K40c", "--os", "windows", "--driver", "472.50", "--python", "3.11")
    recommended = rekindle_command("plan", *card, "--shelf", str(root), "--json").json()["recommended"]
    assert (recommended["route"], recommended["torch"]) == ("shelf", "2.7.1")
    assert rekindle_command("shelf", "export", "--shelf", str(root), "-o", str(tmp_path / "stick")).code == 0
    assert _links(tmp_path / "stick/simple/demo/index.html") == _links(root / "simple/demo/index.html")
    assert rekindle_command("shelf", "export", "--shelf", str(root), "-o", str(root)).code == 2


def test_an_empty_shelf_is_no_error_and_cannot_be_served(tmp_path: Path) -> None:
    assert rekindle_command("shelf", "list", "--shelf", str(tmp_path / "none")).code == 0
    assert rekindle_command("shelf", "serve", "--shelf", str(tmp_path / "none")).code == 14


def test_a_newcomer_is_told_what_to_type(tmp_path: Path) -> None:
    place = tmp_path / "my shelf"
    empty = rekindle_command("shelf", "list", "--shelf", str(place))
    assert (empty.code, "rekindle shelf add" in empty.out) == (0, True)
    none = rekindle_command("shelf", "find", "--gpu", "Tesla K40c", "--shelf", str(place))
    assert (none.code, "Tesla K40c" in none.out) == (5, True)
    added = rekindle_command("shelf", "add", str(_verified(tmp_path)), "--shelf", str(place))
    assert added.code == 0
    assert f'--extra-index-url {(place / "simple").as_uri()} "demo==1.0"' in added.err
