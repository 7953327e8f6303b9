"""What an image says of itself, asked of a registry on this machine that wants a pass, as the real ones do."""

from __future__ import annotations

import hashlib
import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rekindle.knowledge.torch import projects
from tools.observe import container_images
from tools.observe.container_images import NotRead, differences, place, read

TAG = "pytorch/pytorch:2.7.1-cuda12.6-cudnn9-runtime"


class Staged:
    """A registry: what it answers by path, and its address."""

    def __init__(self) -> None:
        self.answers: dict[str, bytes] = {}
        self.address = ""
        self.asked: list[str] = []

    def put(self, path: str, value: Any) -> str:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.answers[path] = data
        return f"sha256:{hashlib.sha256(data).hexdigest()}"

    def stage(self, *environment: str) -> None:
        config = {"config": {"Env": list(environment)}, "architecture": "amd64", "os": "linux"}
        digest = f"sha256:{hashlib.sha256(json.dumps(config).encode()).hexdigest()}"
        self.put(f"blobs/{digest}", config)
        manifest = {"schemaVersion": 2, "config": {"digest": digest}, "layers": []}
        own = f"sha256:{hashlib.sha256(json.dumps(manifest).encode()).hexdigest()}"
        self.put(f"manifests/{own}", manifest)
        other = {"digest": "sha256:" + "0" * 64, "platform": {"os": "linux", "architecture": "arm64"}}
        listed = [other, {"digest": own, "platform": {"os": "linux", "architecture": "amd64"}}]
        self.put("manifests/2.7.1-cuda12.6-cudnn9-runtime", {"schemaVersion": 2, "manifests": listed})


@pytest.fixture
def registry() -> Iterator[Staged]:
    staged = Staged()

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            staged.asked.append(self.path)
            if self.path.startswith("/pass?"):
                self._answer(200, b'{"token": "open"}')
            elif self.headers.get("Authorization") != "Bearer open":
                scope = "repository:pytorch/pytorch:pull"
                challenge = f'Bearer realm="{staged.address}/pass",service="here",scope="{scope}"'
                self._answer(401, b"{}", {"WWW-Authenticate": challenge})
            else:
                data = staged.answers.get(self.path.removeprefix("/v2/pytorch/pytorch/"))
                self._answer(404 if data is None else 200, data or b"{}")

        def _answer(self, status: int, data: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    staged.address = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield staged
    server.shutdown()
    server.server_close()


def test_an_image_is_read_through_its_pass_list_and_configuration(registry: Staged) -> None:
    registry.stage("PATH=/usr/bin", "CUDA_VERSION=12.6.3", "PYTORCH_VERSION=2.7.1", "TORCH_CUDA_ARCH_LIST=5.0;6.0")
    found = read(TAG, registry.address)
    assert (found.cuda, found.torch, found.architectures) == ("12.6.3", "2.7.1", "5.0;6.0")
    assert any("scope=repository%3Apytorch%2Fpytorch%3Apull" in path for path in registry.asked)
    registry.stage("CUDA_VERSION=12.8.1")
    assert read(TAG, registry.address).cuda == "12.8.1"


def test_one_byte_changed_is_refused(registry: Staged) -> None:
    registry.stage("CUDA_VERSION=12.6.3")
    blob = next(path for path in registry.answers if path.startswith("blobs/"))
    registry.answers[blob] = registry.answers[blob].replace(b"12.6.3", b"12.6.4")
    with pytest.raises(NotRead, match="does not have the hash"):
        read(TAG, registry.address)


def test_a_registry_that_is_not_there_is_unverified() -> None:
    with pytest.raises(NotRead, match="cannot be reached"):
        read(TAG, "http://127.0.0.1:9")


def test_a_tag_without_our_platform_or_with_a_foreign_answer_is_not_read(registry: Staged) -> None:
    path = "manifests/2.7.1-cuda12.6-cudnn9-runtime"
    registry.put(path, {"manifests": []})
    with pytest.raises(NotRead, match="no image for Linux"):
        read(TAG, registry.address)
    registry.put(path, {"config": {"digest": "../../etc"}})
    with pytest.raises(NotRead, match="names no sha256"):
        read(TAG, registry.address)
    registry.put(path, b"<html>")
    with pytest.raises(NotRead, match="no JSON"):
        read(TAG, registry.address)
    del registry.answers[path]
    with pytest.raises(NotRead, match="answered 404"):
        read(TAG, registry.address)


def test_a_row_that_says_something_else_differs(registry: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    row = next(image for image in projects.images() if image.variant)
    registry.stage("CUDA_VERSION=9.2.1", "PYTORCH_VERSION=0.4.1")
    found = read(TAG, registry.address)
    assert differences(row, found) == [f"CUDA 9.2.1 instead of {row.cuda}", f"torch 0.4.1 instead of {row.torch}"]
    monkeypatch.setattr("sys.argv", ["container_images", row.tag, "--registry", registry.address])
    assert container_images.main() == 9  # the staged registry has another tag


def test_the_registry_is_part_of_the_tag() -> None:
    assert place("nvcr.io/nvidia/pytorch:24.01-py3") == ("https://nvcr.io", "nvidia/pytorch", "24.01-py3")
    assert place(TAG) == (container_images.HUB, "pytorch/pytorch", "2.7.1-cuda12.6-cudnn9-runtime")
