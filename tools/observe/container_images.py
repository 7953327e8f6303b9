"""Holds the container images of `torch/projects.toml` against the registry: what does each tag say of itself?

    python -m tools.observe.container_images [TAG...] [--registry URL]

A tag is asked of its registry: the list of platforms, the manifest for Linux on x86_64, and the image's configuration,
each checked against the hash that named it. The configuration's environment says CUDA, torch and the architectures, as
far as the maker of the image wrote them there. Layers are not fetched: what code the libraries hold stays UNVERIFIED.
Nothing is written: a row that differs is for a person to correct. `--registry` names another one, for a rehearsal.
Exits with 0 when every row agrees, 3 when one differs, 9 when one could not be asked.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

import msgspec

from rekindle.core import fetch
from rekindle.knowledge.torch import projects
from rekindle.knowledge.torch.projects import ContainerImage

HUB = "https://registry-1.docker.io"
_INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
_MANIFESTS = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")
_MOST = 4 << 20
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class NotRead(Exception):
    """The registry gave no answer that can be understood."""


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """What an image says of itself; None: it does not say."""

    digest: str
    cuda: str | None
    torch: str | None
    architectures: str | None


class Registry:
    """One repository of a registry, and the pass it hands out to whoever asks."""

    def __init__(self, address: str, repository: str) -> None:
        self.base = f"{address.rstrip('/')}/v2/{repository}"
        self._pool = fetch.pool_for(address)
        self._pass = ""

    def manifest(self, reference: str) -> tuple[str, dict[str, Any]]:
        """The manifest for Linux on x86_64 of a tag, and its digest."""
        digest, found = self._get(f"manifests/{reference}", (*_INDEXES, *_MANIFESTS))
        if "manifests" not in found:
            return digest, found
        own = [one for one in found["manifests"] if _is_ours(one.get("platform", {}))]
        if not own:
            raise NotRead("it has no image for Linux on x86_64")
        return self._get(f"manifests/{_digest(own[0])}", _MANIFESTS, _digest(own[0]))

    def configuration(self, manifest: dict[str, Any]) -> dict[str, Any]:
        digest = _digest(manifest.get("config", {}))
        return self._get(f"blobs/{digest}", (), digest)[1]

    def _get(self, path: str, types: Sequence[str], wanted: str | None = None) -> tuple[str, dict[str, Any]]:
        answer = self._ask(path, types)
        if answer.status == 401 and not self._pass:
            self._pass = self._fetch_pass(answer.headers.get("WWW-Authenticate", ""))
            answer = self._ask(path, types)
        if answer.status != 200:
            raise NotRead(f"the registry answered {answer.status}")
        data: bytes = answer.data
        if len(data) > _MOST:
            raise NotRead("the answer is too long for a manifest")
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        if digest != (wanted or answer.headers.get("Docker-Content-Digest") or digest):
            raise NotRead("the answer does not have the hash that it was asked by")
        try:
            found = json.loads(data)
        except ValueError:
            raise NotRead("the answer is no JSON") from None
        if not isinstance(found, dict):
            raise NotRead("the answer is no manifest")
        return digest, found

    def _ask(self, path: str, types: Sequence[str]) -> Any:
        headers = {"Accept": ", ".join(types)} if types else {}
        if self._pass:
            headers["Authorization"] = f"Bearer {self._pass}"
        try:
            return self._pool.request("GET", f"{self.base}/{path}", headers=headers)
        except Exception as error:  # urllib3 has many: no name, no route, no certificate, a broken line
            raise NotRead(f"the registry cannot be reached ({type(error).__name__})") from None

    def _fetch_pass(self, challenge: str) -> str:
        said = dict(_CHALLENGE.findall(challenge))
        if not challenge.startswith("Bearer ") or "realm" not in said:
            raise NotRead("the registry asks for a name and a password")
        asked = {name: said[name] for name in ("service", "scope") if name in said}
        answer = fetch.pool_for(said["realm"]).request("GET", f"{said['realm']}?{urlencode(asked)}")
        found = json.loads(answer.data) if answer.status == 200 else {}
        return str(found.get("token") or found.get("access_token") or "")


def read(tag: str, registry: str = "") -> Image:
    """What the image of a tag says of itself."""
    address, repository, reference = place(tag)
    hub = Registry(registry or address, repository)
    digest, manifest = hub.manifest(reference)
    about = hub.configuration(manifest).get("config", {})
    told = dict(line.partition("=")[::2] for line in about.get("Env") or [])
    labels = about.get("Labels") or {}
    torch = told.get("PYTORCH_VERSION") or told.get("PYTORCH_BUILD_VERSION") or labels.get("com.nvidia.pytorch.version")
    return Image(
        digest=digest, cuda=told.get("CUDA_VERSION"), torch=torch, architectures=told.get("TORCH_CUDA_ARCH_LIST")
    )


def place(tag: str) -> tuple[str, str, str]:
    """`nvcr.io/nvidia/pytorch:24.01-py3` as registry, repository and tag; without a registry it is Docker's."""
    name, _, reference = tag.rpartition(":")
    first, slash, rest = name.partition("/")
    if slash and ("." in first or ":" in first):
        return f"https://{first}", rest, reference
    return HUB, name, reference


def differences(row: ContainerImage, found: Image) -> list[str]:
    """Where the image and the row of the table say different things."""
    said = []
    if found.cuda and ".".join(found.cuda.split(".")[:2]) != str(row.cuda):
        said.append(f"CUDA {found.cuda} instead of {row.cuda}")
    own = re.match(r"\d+\.\d+(?:\.\d+)?", found.torch or "")
    if row.torch and own and own[0] != row.torch:
        said.append(f"torch {found.torch} instead of {row.torch}")
    return said


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("tags", nargs="*", help="only these; otherwise all of projects.toml")
    parser.add_argument("--registry", default="", help="ask this registry for all of them")
    options = parser.parse_args()
    states = [_state(row, options.registry) for row in projects.images() if not options.tags or row.tag in options.tags]
    if missing := set(options.tags) - {row.tag for row in projects.images()}:
        raise SystemExit(f"projects.toml has no image {', '.join(sorted(missing))}")
    return 3 if 3 in states else max(states, default=0)


def _state(row: ContainerImage, registry: str) -> int:
    try:
        found = read(row.tag, registry)
    except NotRead as error:
        print(f"{row.tag}: UNVERIFIED: {error}")
        return 9
    wrong = differences(row, found)
    told = [f"CUDA {found.cuda}" if found.cuda else "", f"torch {found.torch}" if found.torch else ""]
    told.append(f"for {found.architectures}" if found.architectures else "")
    silent = "" if found.cuda else "; it does not say its CUDA: UNVERIFIED"
    print(
        f"{row.tag}: {'differs: ' + '; '.join(wrong) if wrong else 'agrees'} ({', '.join(filter(None, told))}){silent}"
    )
    print(f"  {found.digest}")
    return 3 if wrong else 0 if found.cuda else 9


def _is_ours(platform: dict[str, Any]) -> bool:
    return (platform.get("os"), platform.get("architecture")) == ("linux", "amd64")


def _digest(entry: dict[str, Any]) -> str:
    digest = str(entry.get("digest", ""))
    if not _DIGEST.fullmatch(digest):
        raise NotRead("a manifest names no sha256")
    return digest


if __name__ == "__main__":
    sys.exit(main())
