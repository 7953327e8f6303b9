"""What a stranger's file or variable reaches between two modules, each of which thinks that the other looked."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rekindle.build import env_command
from rekindle.build.configure.compiler_cache import CacheUse
from rekindle.core import codec, python, redact, untrusted
from rekindle.core.errors import BadInput
from rekindle.core.patience import patience
from rekindle.extension import build as extension_build
from rekindle.fleet import scheduler, worker
from rekindle.install import record
from rekindle.knowledge import tables, updates
from rekindle.knowledge.torch import options, releases
from rekindle.machine.model import Machine
from rekindle.toolchain.model import Part

posix = pytest.mark.skipif(os.name == "nt", reason="the programs of these tests are scripts of sh")


@posix
@pytest.mark.parametrize("named", ["sh", "./sh", "bin/sh"])
def test_a_shell_is_not_taken_from_where_one_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    """`rekindle shell` started what SHELL names by itself: a `bash` in a downloads folder, where PATH has a dot."""
    (tmp_path / "bin").mkdir()
    for place in (tmp_path / "sh", tmp_path / "bin" / "sh"):
        place.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n", encoding="utf-8")
        place.chmod(0o755)
    (tmp_path / "b.toml").write_text('source = "."\nname = "x"\nversion = "1"\nbackend = "cmake"\n', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHELL", named)
    monkeypatch.setenv("PATH", f".:{os.environ['PATH']}")
    env_command.open_shell(env_command.EnvCommand(plan=tmp_path / "b.toml"), tell=lambda text: None)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("digits", [40, 400, 5000])
@pytest.mark.parametrize("kind", [CacheUse, Machine, Part, dict[str, int]])
def test_a_number_is_one_that_can_be_reckoned_with(digits: int, kind: type) -> None:
    """A size of four hundred digits ended `shelf list`, `doctor --machine`, `report` and `toolchain install` alike."""
    for text in ('{"size": %s}', '{"x": [{"hits": -%s}]}'):
        with pytest.raises(BadInput):
            codec.from_json(text % ("9" * digits), kind)
    with pytest.raises(BadInput):
        codec.from_toml(f"size = {'9_' * digits}9", kind)
    assert codec.from_json(f'{{"a": {2**64 - 1}, "{"9" * digits}": 1}}', dict[str, int])["a"] == 2**64 - 1

    machine = Machine(os="linux", arch="x86_64")
    assert extension_build.jobs(machine, {"MAX_JOBS": "9" * digits}) == extension_build.jobs(machine, {})


def test_a_worker_leaves_no_password_of_its_cache_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it was told lay in `worker.json`, which every user of the machine could read."""
    monkeypatch.setattr(scheduler, "secured", lambda *given: None)
    said = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_bytes(sys.stdin.buffer.read())"
    monkeypatch.setattr(python, "own", lambda *words: [sys.executable, "-c", said, str(tmp_path / "told")])
    folder = tmp_path / "worker"
    told = worker.WorkerSettings(scheduler="tls://x:1", folder=str(folder), name="x", cache="redis://me:Xyz123pw@h/0")
    assert worker.serve(told, print) == 0
    assert codec.from_json((tmp_path / "told").read_bytes(), worker.WorkerSettings) == told
    assert not list(folder.iterdir())


@pytest.mark.parametrize("lie", ["--index-url=http://127.0.0.1:9", "-chttp://127.0.0.1:9", "@http://127.0.0.1:9/x.whl"])
@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("cuda/toolkit_packages.json", lambda row, lie: row["components"].update(nvcc=[lie])),
        ("torch/conda_extensions.json", lambda row, lie: row.update(name=lie)),
        ("torch/conda_extensions.json", lambda row, lie: row.update(version=lie)),
        ("torch/conda_forge.json", lambda row, lie: row.update(torch=lie)),
        ("torch/companions.json", lambda row, lie: row.update(version=lie)),
        ("torch/torch_releases.json", lambda row, lie: row["variants"][0].update(name=lie)),
        ("cuda/mathlibs.json", lambda row, lie: row.update(package=lie)),
        ("cuda/cudnn.json", lambda row, lie: row["packages"].update({lie: ["linux"]})),
    ],
)
def test_no_row_of_a_bundle_is_an_option(table: str, change: Callable[[Any, str], None], lie: str) -> None:
    """A bundle is trusted with names and versions: one row made pip ask an index of its own."""
    whole = tables.built_in(table)
    assert codec.from_builtins(whole, updates.kind_of(table))
    rows = [row for name in ("releases", *whole) if isinstance(whole.get(name), list) for row in whole[name]]
    change(rows[0], lie)
    with pytest.raises(BadInput):
        codec.from_builtins(whole, updates.kind_of(table))


def test_no_release_of_a_bundle_brings_a_package_from_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """`setuptools@http://…` is one to pip."""
    bad = msgspec.structs.replace(releases.torch_release("2.7"), setuptools="@http://127.0.0.1:9/x.whl")
    monkeypatch.setattr(options, "torch_release", lambda torch: bad)
    with pytest.raises(BadInput):
        options.requirements("2.7.1")


def test_a_record_of_files_that_are_not_there_is_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A RECORD of 8 MB kept `install --undo` busy for minutes: each folder of each name was followed."""
    info = tmp_path / "lib" / "x-1.dist-info"
    info.mkdir(parents=True)
    (info / "RECORD").write_text("".join(f"{row}/{'a/' * 2000}x.py,,\n" for row in range(100)), encoding="utf-8")
    followed: list[Path] = []
    monkeypatch.setattr(
        record, "leads_inside", lambda folder, root: followed.append(folder) or untrusted.leads_inside(folder, root)
    )
    found = record.files_of(record.Distribution(name="x", version="1", info=info.name), info.parent, tmp_path)
    assert found == [info / "RECORD"] and followed == [info]


@pytest.mark.parametrize(
    "said",
    [
        "HTTPS://me:{}@host/x", "https://{}:@host/simple", "HF_TOKEN=$'{}'", 'HF_TOKEN=("{}")', 'HF_TOKEN => "{}"',
        "('HF_TOKEN', '{}')", '["WANDB_API_KEY", "{}"]', "HF_TO\x1b]0;x\x07KEN={}", "HF_TOKEN＝{}",
        "https://api.telegram.org/bot123456789:AA{}Xy4wV7uT3/send",
        "---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\n{}\n---- END SSH2 ENCRYPTED PRIVATE KEY ----",
    ],
)  # fmt: skip
def test_a_secret_in_an_odd_dress_is_one(said: str) -> None:
    secret = "Zq8vT3kLw9XpR2mN7bY4cD6f"
    assert secret not in redact.secrets(said.format(secret))


@pytest.mark.parametrize("path", [r"\\host\s", "//host/s", r"\??\UNC\host\s", "/??/UNC/host/s", r"\\.\GLOBALROOT\x"])
def test_another_computer_is_known_in_every_spelling(path: str) -> None:
    """Windows takes a path that begins like its own names for one of them."""
    assert untrusted.on_another_computer(path)
    assert not untrusted.on_another_computer("/home/me") and not untrusted.on_another_computer(r"C:\x")


@pytest.mark.skipif(os.name == "nt", reason="Windows looks every half second")
def test_an_assistant_is_not_kept_busy_by_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each question had a thread of its own, in which nobody hears that the time is over: 8 kB took minutes."""
    pytest.importorskip("mcp")
    from rekindle.web import assistant

    calls = "".join(f"call :l{number}\n:l{number}\n" for number in range(1, 300))
    (tmp_path / "slow.bat").write_text(f"{calls}pip install torch==2.1.0\n", encoding="utf-8")
    monkeypatch.setattr(assistant, "patience", partial(patience, seconds=0.3))
    asked = assistant.server([tmp_path]).call_tool("review", {"script": str(tmp_path / "slow.bat")})
    assert "keeps its reader busy" in str(asyncio.run(asked))
