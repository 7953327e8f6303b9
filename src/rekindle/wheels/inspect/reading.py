"""All compiled files of a package, each read once, with what tells the identity of a torch package."""

from __future__ import annotations

from rekindle.formats.binary import Binary, is_binary
from rekindle.formats.package import Package
from rekindle.wheels.inspect import identity


def read_binaries(found: Package, *, units: bool = False) -> list[Binary]:
    return [
        found.binary(name, symbols=True, texts=identity.wanted_texts(name), units=units)
        for name in found.files
        if is_binary(name)
    ]
