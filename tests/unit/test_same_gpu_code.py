"""One package, asked by every verb that reads GPU code: the same reading, the same answer."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from rekindle.audit.audit import audit
from rekindle.core.errors import ChecksFailed
from rekindle.core.findings import State
from rekindle.extension.check import served_by
from rekindle.model.card import Capability, NamedCard
from rekindle.wheels.inspect.inspection import inspect, lost, targets_of
from rekindle.wheels.shelf import shelf
from rekindle.wheels.verify import static_checks
from support import torch_like
from support.command import rekindle_command
from support.fatbins import cubin, entry

K40 = NamedCard(name="Tesla K40c", capability=Capability(3, 5))
JUNK = entry("sm_35", payload=bytes(64))
EMPTY = entry("sm_52", payload=cubin(52, None))
OWN, NCCL, NVBLAS = "ext/_C.so", "nvidia/nccl/lib/libnccl.so.2", "nvidia/cublas/lib/libnvblas.so.11"


def made(folder: Path, name: str, *containers: tuple[str | bytes, ...]) -> Path:
    return torch_like.wheel(folder, libraries={name: containers}, project="ext", version="1.0")


def audited(wheel: Path, folder: Path) -> dict[str, str]:
    site = folder / "env" / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True)
    (folder / "env" / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.4\n", encoding="utf-8")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return {module.path: module.coverage["Tesla K40c"] for module in audit(folder / "env", cards=[K40]).modules}


@pytest.mark.parametrize(
    ("name", "containers", "answer"),
    [
        (OWN, (("sm_35", "sm_50"),), "SERVES"),
        (OWN, (("sm_35",), (EMPTY,)), "SERVES"),
        (OWN, (("sm_35", "sm_50"), ("sm_50", "sm_60")), "PARTIAL"),
        (OWN, ((JUNK,),), "NO"),
        (OWN, (("sm_50", JUNK),), "NO"),
        (OWN, (("sm_35", "sm_50"), (JUNK,)), "PARTIAL"),
        (NCCL, (("sm_50", "sm_60"), ("sm_35", "sm_50")), "SERVES"),
        (NCCL, (("sm_50", "sm_60"),), "NO"),
    ],
    ids=["code", "beside-a-stub", "in-part", "junk", "junk-beside-code", "one-of-junk", "nvidias", "nvidias-without"],
)
def test_every_verb_gives_the_same_answer(
    tmp_path: Path, name: str, containers: tuple[tuple[str | bytes, ...], ...], answer: str
) -> None:
    wheel = made(tmp_path, name, *containers)
    assert [card.coverage.value for card in inspect(wheel, cards=["sm_35"]).cards] == [answer]
    assert audited(wheel, tmp_path) == {name: answer}
    with static_checks.opened(wheel, ["sm_35"]) as subject:
        found = static_checks.coverage(subject, ["sm_35"])
    assert (found.state is State.PASS, f"(3.5) {answer}" in found.found) == (answer == "SERVES", True)
    assert (served_by(wheel, [K40])[1] == []) == (answer == "SERVES")
    if any(JUNK in each for each in containers):
        with pytest.raises(ChecksFailed, match="failed its verification: file"):
            shelf.add(tmp_path / "shelf", [wheel])
    else:
        shelved = shelf.add(tmp_path / "shelf", [wheel])
        assert shelf.serves(shelved[0], K40.capability) == (answer == "SERVES")


def test_a_stub_is_no_gpu_code_whatever_its_name(tmp_path: Path) -> None:
    """A libnvblas of CUDA 11 has nothing but an empty cubin: `audit` called it a FAIL."""
    for name in (NVBLAS, OWN):
        folder = tmp_path / name.replace("/", "-")
        folder.mkdir()
        wheel = made(folder, name, (EMPTY,))
        assert inspect(wheel).gpu_code == ()
        assert audited(wheel, folder) == {}


def test_bytes_under_a_header_are_not_code(tmp_path: Path) -> None:
    """64 bytes under a header that says sm_35 were code for sm_35."""
    wheel = made(tmp_path, OWN, ("sm_50", JUNK))
    assert lost(inspect(wheel), targets_of(["sm_35", "sm_50"])) == list(targets_of(["sm_35"]))
    assert rekindle_command("inspect", str(wheel), "--require", "sm_35").code == 8
    checked = rekindle_command("verify", str(wheel), "--no-run", "--gpu", "sm_35", "--json").json()["checks"]
    said = {check["id"]: check for check in checked}
    assert (said["file"]["state"], said["coverage"]["state"]) == ("FAIL", "FAIL")
    assert "code for sm_35 is neither a cubin nor PTX" in said["file"]["found"]
