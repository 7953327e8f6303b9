from __future__ import annotations

import contextlib
import hashlib
import html.parser
import json
import os
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rekindle.core import codec, web_server
from rekindle.core.findings import State
from rekindle.model.card import Capability
from rekindle.stack import prebuilt
from rekindle.stack.rules import RouteKind
from rekindle.wheels.shelf import serve, shelf
from rekindle.wheels.verify.signed_report import signature_beside
from rekindle.wheels.verify.verify import Verification, report_beside
from support import small_wheels, torch_like
from support.artefacts import needs_environments
from support.command import rekindle_command
from support.shelves import pure_wheel, with_report


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
    wheel = pure_wheel(tmp_path / "in")
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


def test_the_shelf_checks_for_itself(tmp_path: Path) -> None:
    root = tmp_path / "shelf"
    plain = pure_wheel(tmp_path / "a")
    failed = with_report(pure_wheel(tmp_path / "b", version="2.0"), State.FAIL)
    changed = with_report(pure_wheel(tmp_path / "c"))
    changed.write_bytes(pure_wheel(tmp_path / "d", body="# other").read_bytes())
    unreadable = pure_wheel(tmp_path / "e")
    report_beside(unreadable).write_text("{", encoding="utf-8")
    for wheel, code in ((failed, 8), (changed, 4), (unreadable, 4)):
        seen = rekindle_command("shelf", "add", str(wheel), "--shelf", str(root))
        assert (seen.code, "hint:" in seen.err) == (code, True), wheel
        # The wheel itself may be without fault: who wants it on the shelf looks for what speaks against it.
        assert (f", by `{report_beside(wheel).name}`, failed" in seen.err) is (wheel is failed)
    assert not list(root.glob("wheels/*"))
    assert rekindle_command("shelf", "add", str(plain), "--shelf", str(root)).code == 0
    assert [entry.state for entry in shelf.entries(root)] == [State.UNVERIFIED]


def test_an_unsigned_report_that_says_pass_is_not_believed(tmp_path: Path) -> None:
    wheel = with_report(pure_wheel(tmp_path / "in"))
    seen = rekindle_command("shelf", "add", str(wheel), "--shelf", str(tmp_path / "shelf"))
    assert "is not believed: it is not signed" in seen.err
    assert "UNVERIFIED" in rekindle_command("shelf", "list", "--shelf", str(tmp_path / "shelf")).out
    named = rekindle_command(
        "shelf", "add", str(wheel), "--report", str(report_beside(wheel)), "--shelf", str(tmp_path / "two")
    )
    assert "is not believed" in named.err


def test_a_damaged_wheel_is_refused_whatever_its_report_says(tmp_path: Path) -> None:
    """The attack: FAIL edited to PASS beside a wheel that fails."""
    files = {
        "demo/__init__.py": b"x = 1\n",
        "demo-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n",
        "demo-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lying = small_wheels.record({**files, "demo/__init__.py": b"x = 2\n"})
    wheel = small_wheels.make(tmp_path, files, name="demo-1.0-py3-none-any.whl", record_bytes=lying)
    with_report(wheel)
    seen = rekindle_command("shelf", "add", str(wheel), "--shelf", str(tmp_path / "shelf"))
    assert (seen.code, "record" in seen.err) == (8, True)


@pytest.mark.long
def test_what_the_owner_ran_and_signed_is_believed(tmp_path: Path) -> None:
    needs_environments()
    wheel = pure_wheel(tmp_path / "in")
    assert rekindle_command("verify", str(wheel)).code in (0, 9)
    assert signature_beside(report_beside(wheel)).is_file()
    (entry,) = shelf.add(tmp_path / "shelf", [wheel])
    report = codec.from_json((tmp_path / "shelf/wheels" / f"{wheel.name}.verify.json").read_bytes(), Verification)
    assert {check.id: check.state for check in report.checks}["import"] is State.PASS
    edited = report_beside(wheel).read_text(encoding="utf-8").replace("UNVERIFIED", "PASS")
    report_beside(wheel).write_text(edited, encoding="utf-8")
    shelf.add(tmp_path / "two", [wheel])
    again = codec.from_json((tmp_path / "two/wheels" / f"{wheel.name}.verify.json").read_bytes(), Verification)
    assert {check.id: check.state for check in again.checks}["import"] is State.UNVERIFIED
    assert entry.signed_by is not None


@pytest.mark.parametrize("name", ["/somewhere/x", "../../x", "C:\\x", "demo/../x", "other", "", "x" * 300 + "/"])
def test_a_name_that_leads_elsewhere_writes_nothing(tmp_path: Path, name: str) -> None:
    stated = str(tmp_path / "outside" / "x") if name == "/somewhere/x" else name
    wheel = pure_wheel(tmp_path / "in", name=stated or " ")
    seen = rekindle_command("shelf", "add", str(wheel), "--shelf", str(tmp_path / "shelf"))
    assert seen.code in (4, 8), seen.err
    assert not (tmp_path / "outside").exists()
    assert not list((tmp_path / "shelf").rglob("*.whl*"))


@pytest.mark.skipif(os.name == "nt", reason="links need rights on Windows")
@pytest.mark.parametrize("name", ["wheels", "simple", "simple/demo"])
def test_a_shelf_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    """Of a project's folder below `simple`, the pages were written to where the link led."""
    outside = tmp_path / "outside"
    outside.mkdir()
    root = tmp_path / "shelf"
    (root / name).parent.mkdir(parents=True)
    (root / name).symlink_to(outside, target_is_directory=True)
    seen = rekindle_command("shelf", "add", str(pure_wheel(tmp_path / "in")), "--shelf", str(root))
    assert (seen.code, "is a link, and may lead out of" in " ".join(seen.err.split())) == (4, True)
    assert not list(outside.iterdir())


@pytest.mark.skipif(os.name == "nt", reason="links need rights on Windows")
def test_neither_server_nor_export_follows_a_link_out(tmp_path: Path, served: str) -> None:
    (tmp_path / "shelf/wheels/secret.whl").symlink_to(tmp_path / "secret.txt")
    (tmp_path / "shelf/simple/inner").symlink_to(tmp_path, target_is_directory=True)
    assert _get(f"{served}/wheels/secret.whl")[0] == 404
    assert _get(f"{served}/simple/inner/secret.txt")[0] == 404
    wheel = shelf.entries(tmp_path / "shelf")[0].file
    (tmp_path / "shelf/wheels" / wheel).unlink()
    (tmp_path / "shelf/wheels" / wheel).symlink_to(tmp_path / "secret.txt")
    assert (
        rekindle_command("shelf", "export", "--shelf", str(tmp_path / "shelf"), "-o", str(tmp_path / "out")).code == 0
    )
    assert not (tmp_path / "out/wheels" / wheel).exists()


@pytest.mark.long
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
    shelf.add(tmp_path / "shelf", [pure_wheel(tmp_path / "in")])
    (tmp_path / "secret.txt").write_text("secret", encoding="utf-8")
    with serve.server(tmp_path / "shelf", "127.0.0.1", 0) as address:
        yield address


def _get(address: str, accept: str = "*/*", method: str = "GET") -> tuple[int, str, bytes]:
    request = urllib.request.Request(address, headers={"Accept": accept}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
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
    assert _get(f"{served}/shelf.json")[0] == 200
    for path in (
        "/../secret.txt",
        "/%00",
        "/simple/%00/",
        "/simple/demo/%0a",
        "/replaced/",
        "/simple/nothing/",
        "/%2e%2e/secret.txt",
        "/wheels/",
        "/.lock",
        "/simple/demo/..%5c..%5csecret.txt",
    ):
        assert _get(served + path)[0] == 404, path
    for method in ("POST", "PUT", "DELETE"):
        assert _get(f"{served}/simple/demo/", method=method)[0] == 405


def test_a_page_that_is_written_anew_meanwhile_is_sent_whole(
    served: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its length was that of the old one, and its text that of the new one: the answer broke off."""
    page = tmp_path / "shelf" / "index.html"
    stat = Path.stat

    def then_shorter(self: Path, **how: bool) -> os.stat_result:
        found = stat(self, **how)
        if self.name == "index.html" and sys._getframe(1).f_code.co_name == "__call__":  # it asks how long it is
            page.write_bytes(b"new\n")
        return found

    monkeypatch.setattr(Path, "stat", then_shorter)
    with urllib.request.urlopen(served, timeout=120) as answer:
        assert answer.read() == b"new\n"


def test_a_large_file_beside_a_wheel_is_not_read_whole(served: str, tmp_path: Path) -> None:
    """Every question for it took its size in memory, also one that asked for nothing but its length."""
    beside = next((tmp_path / "shelf/wheels").glob("*.metadata"))
    with beside.open("r+b") as stream:
        stream.truncate(100 << 20)
    tracemalloc.start()
    try:
        assert _get(f"{served}/wheels/{beside.name}", method="HEAD")[0] == 200
        assert tracemalloc.get_traced_memory()[1] < 30 << 20
    finally:
        tracemalloc.stop()


def test_ranges_and_etags(served: str, tmp_path: Path) -> None:
    wheel = next((tmp_path / "shelf/wheels").glob("*.whl"))
    address = f"{served}/wheels/{wheel.name}"
    request = urllib.request.Request(address, headers={"Range": "bytes=0-3"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        assert (answer.status, answer.read(), answer.headers["Content-Range"]) == (
            206, b"PK\3\4", f"bytes 0-3/{wheel.stat().st_size}",
        )  # fmt: skip
        etag = answer.headers["ETag"]
    same = urllib.request.Request(address, headers={"If-None-Match": etag})
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(same, timeout=120)
    assert error.value.code == 304
    error.value.close()
    beyond = urllib.request.Request(address, headers={"Range": f"bytes={wheel.stat().st_size + 5}-"})
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(beyond, timeout=120)
    assert error.value.code == 416
    error.value.close()


def test_inspect_reads_a_wheel_on_our_own_server(served: str, tmp_path: Path) -> None:
    wheel = next((tmp_path / "shelf/wheels").glob("*.whl"))
    seen = rekindle_command("inspect", f"{served}/wheels/{wheel.name}", "--json")
    assert (seen.code, seen.json()["project"]) == (0, "demo")


def test_half_open_clients_hold_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_server, "REQUEST_SECONDS", 1.0)
    shelf.add(tmp_path / "shelf", [pure_wheel(tmp_path / "in")])
    with serve.server(tmp_path / "shelf", "127.0.0.1", 0) as address:
        host, port = address.removeprefix("http://").split(":")
        before = threading.active_count()
        # Wine's AcceptEx gave up once, after some two hundred.
        many = 300 if os.name != "nt" else 100
        clients = [socket.create_connection((host, int(port))) for _ in range(many)]
        for client in clients[: many // 2]:
            with contextlib.suppress(ConnectionError):
                client.sendall(b"GET /simple/demo/ HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        assert threading.active_count() - before < 10
        assert _get(f"{address}/simple/demo/")[0] == 200
        deadline = time.monotonic() + 60
        for client in clients:
            client.settimeout(max(0.1, deadline - time.monotonic()))
            with contextlib.suppress(ConnectionError):
                assert client.recv(1) == b""
            client.close()


def test_adds_at_the_same_time_all_arrive(tmp_path: Path) -> None:
    wheels = [pure_wheel(tmp_path / "in", version=f"1.{n}") for n in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda wheel: shelf.add(tmp_path / "shelf", [wheel]), wheels))
    assert len(_links(tmp_path / "shelf/simple/demo/index.html")) == 8
    assert [entry.version for entry in shelf.entries(tmp_path / "shelf")] == [f"1.{n}" for n in reversed(range(8))]


def test_prune_keeps_the_newest_of_each_kind(tmp_path: Path) -> None:
    root = tmp_path / "shelf"
    shelf.add(root, [pure_wheel(tmp_path / "in", version=v) for v in ("1.9", "1.10", "1.8")])
    shelf.add(root, [pure_wheel(tmp_path / "in", project="other")])
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
    code = {"torch/lib/kernels.fatbin": (("sm_35", "sm_61", "compute_61"),) * 2}
    tag = "cp311-cp311-win_amd64"
    wheel = torch_like.wheel(tmp_path / "in", libraries=code, tag=tag)
    shelf.add(root, [pure_wheel(tmp_path / "in"), wheel])
    find = ("shelf", "find", "--shelf", str(root))
    seen = rekindle_command(*find, "--gpu", "Tesla K40c", "--torch", "2.7", "--python", "3.11", "--json")
    assert [one["file"] for one in seen.json()["wheels"]] == [wheel.name]
    assert " torch==2.7.1+cu118\n" in seen.err
    for words in (("--gpu", "sm_30"), ("--torch", "2.6"), ("--python", "3.12", "--gpu", "sm_35"), ("--cuda", "12.1")):
        assert rekindle_command(*find, *words).code == 5, words
    # Since 2.7.1 the kernels of a Hopper card are empty in PTX of older cards: it would run and compute nonsense.
    assert rekindle_command(*find, "--torch", "2.7", "--gpu", "RTX 3060").code == 0
    assert rekindle_command(*find, "--torch", "2.7", "--gpu", "H200").code == 5
    offer = shelf.offers(root).offers[0]
    assert (prebuilt.coverage(offer, Capability(8, 6)), prebuilt.coverage(offer, Capability(9, 0))) == ("SERVES", "NO")
    assert (offer.route, offer.torch, offer.variant, str(offer.cuda)) == (RouteKind.SHELF, "2.7.1", "cu118", "11.8")
    assert (offer.system, offer.machine, offer.pythons) == ("windows", "x86_64", ("3.11",))
    assert offer.location == str(root / "wheels" / wheel.name)
    card = ("--gpu", "Tesla K40c", "--os", "windows", "--driver", "472.50", "--python", "3.11")
    recommended = rekindle_command("plan", *card, "--shelf", str(root), "--json").json()["recommended"]
    assert (recommended["route"], recommended["torch"]) == ("shelf", "2.7.1")
    assert rekindle_command("shelf", "export", "--shelf", str(root), "-o", str(tmp_path / "stick")).code == 0
    assert _links(tmp_path / "stick/simple/demo/index.html") == _links(root / "simple/demo/index.html")
    assert rekindle_command("shelf", "verify", "--shelf", str(tmp_path / "stick")).code == 0
    assert rekindle_command("shelf", "export", "--shelf", str(root), "-o", str(root)).code == 2


def test_an_empty_shelf_is_no_error_and_cannot_be_served(tmp_path: Path) -> None:
    assert rekindle_command("shelf", "list", "--shelf", str(tmp_path)).code == 0
    assert rekindle_command("shelf", "serve", "--shelf", str(tmp_path)).code == 14


def test_a_newcomer_is_told_what_to_type(tmp_path: Path) -> None:
    place = tmp_path / "my shelf"
    place.mkdir()
    empty = rekindle_command("shelf", "list", "--shelf", str(place))
    assert (empty.code, "rekindle shelf add" in empty.out) == (0, True)
    none = rekindle_command("shelf", "find", "--gpu", "Tesla K40c", "--shelf", str(place))
    assert (none.code, "Tesla K40c" in none.out) == (5, True)
    added = rekindle_command("shelf", "add", str(pure_wheel(tmp_path)), "--shelf", str(place))
    assert added.code == 0
    # A shell may want the address quoted: it has a `%20`.
    assert f"--extra-index-url {(place / 'simple').as_uri()} demo==1.0" in added.err.replace("'", "").replace('"', "")


def test_a_mistyped_shelf_is_not_an_empty_one(tmp_path: Path) -> None:
    missing = rekindle_command("shelf", "list", "--shelf", str(tmp_path / "nope"))
    assert missing.code == 14 and "no such" in missing.err
    (tmp_path / "notes.txt").write_text("x", encoding="utf-8")
    other = rekindle_command("shelf", "verify", "--shelf", str(tmp_path))
    assert other.code == 4 and "is not a shelf" in other.err


def test_a_shelf_with_nothing_on_it_was_not_verified(tmp_path: Path) -> None:
    empty = rekindle_command("shelf", "verify", "--shelf", str(tmp_path))
    assert empty.code == 9 and "nothing was checked" in empty.out


def test_a_wheel_without_anything_compiled_is_found_for_a_card_by_its_name(tmp_path: Path) -> None:
    wheel, place = pure_wheel(tmp_path, project="sageattention"), tmp_path / "shelf"
    shelf.add(place, [wheel], shelf.Addition())
    assert len(shelf.find(place, [Capability(8, 6)], project="sageattention")) == 1
    assert shelf.find(place, [Capability(6, 1)], project="sageattention") == ()  # the project begins with 8.0
    assert shelf.find(place, [Capability(8, 6)]) == ()
