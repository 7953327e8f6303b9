"""Committed tables against the real artefacts they were read from."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from support.artefacts import unverified
from tools.observe import companions, host_compilers, table, toolkits


@pytest.mark.parametrize("cuda", ["11.8", "12.3", "12.8", "13.0", "13.4"])
def test_host_compiler_limits_are_those_of_the_real_header(cuda: str) -> None:
    row = next(row for row in table.read("host_compilers")["cuda"] if row["cuda"] == cuda)
    packages = dict(host_compilers.listed().get(cuda, []))
    header = host_compilers.header_of(packages[row["packages"][-1]]) if row["packages"][-1] in packages else None
    if header is None:
        unverified(f"{row['packages'][-1]} could not be downloaded")
        return
    found = host_compilers.limits(header)
    assert found == {name: row[name] for name in found}


@pytest.mark.parametrize("cuda", ["11.8", "12.9", "13.0"])
def test_targets_are_those_of_the_real_ptxas(cuda: str, tmp_path: Path) -> None:
    row = next(row for row in table.read("toolkits")["toolkits"] if row["version"] == cuda)
    _, url = toolkits.listed().get(cuda, (None, None))
    ptxas = toolkits.ptxas_of(url, tmp_path) if url else None
    if ptxas is None:
        unverified(f"no ptxas {cuda} for this processor could be downloaded")
        return
    assert sorted(toolkits.targets(ptxas)) == sorted(row["targets"])
    assert toolkits.ptx_isa(ptxas, "sm_80") == row["ptx_isa"]


@pytest.mark.parametrize("version", ["0.22.1", "0.29.1", "0.29.2"])
def test_companions_are_those_of_the_index(version: str) -> None:
    wheels = companions._versions("torchvision").get(version)
    if wheels is None:
        unverified("the index lists no such torchvision")
        return
    expected = [row for row in table.read("companions")["companions"] if row["version"] == version]
    found = list(companions._rows("torchvision", version, wheels))
    for row in found:
        assert {**row, "observed_at": ""} in [{**one, "observed_at": ""} for one in expected]
