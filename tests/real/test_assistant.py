"""`rekindle mcp`, asked by the protocol's own client."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="UNVERIFIED: the package `mcp` is not installed")
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from rekindle import __version__
from support import trees


async def _ask(*questions: tuple[str, dict[str, Any]]) -> tuple[set[str], list[dict[str, Any]]]:
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    program = StdioServerParameters(
        command=sys.executable, args=["-m", "rekindle", "mcp", "--folder", tempfile.gettempdir()], env=env
    )
    async with stdio_client(program) as (reading, writing), ClientSession(reading, writing) as session:
        await session.initialize()
        tools = {tool.name for tool in (await session.list_tools()).tools}
        answers = [await session.call_tool(name, words) for name, words in questions]
        return tools, [json.loads(each.content[0].text) for each in answers]


def test_an_assistant_gets_the_answer_of_plan_and_a_hint_for_a_wrong_name(tmp_path: Path) -> None:
    log = tmp_path / "build.log"
    log.write_text("RuntimeError: CUDA error: no kernel image is available for execution on the device\n", "utf-8")
    tools, (planned, unknown, found, heard) = asyncio.run(
        _ask(
            ("plan", {"gpu": "GTX 1080 Ti", "os": "windows"}),
            ("gpu", {"name": "GTX 9999"}),
            ("diagnose", {"log": str(log)}),
            ("diagnose", {"log": log.read_text("utf-8")}),
        )
    )
    assert tools == {"plan", "gpu", "diagnose", "inspect", "doctor", "review"}
    assert planned["recommended"]["commands"][0].startswith("pip install torch==")
    assert unknown["code"] == 3 and unknown["hint"]
    assert found["causes"]
    assert heard["causes"] == found["causes"]


@pytest.mark.parametrize(
    "name",
    [
        "/etc/hostname",
        "//host/share/x.log",
        r"\\host\share\x.log",
        r"\\.\PhysicalDrive0",
        "https://host/x.log",
        "../../etc/hostname",
    ],
)
def test_only_what_the_user_allowed_is_read(name: str) -> None:
    _, (found, inspected, reviewed) = asyncio.run(
        _ask(("diagnose", {"log": name}), ("inspect", {"path": name}), ("review", {"script": name}))
    )
    assert {each["code"] for each in (found, inspected, reviewed)} == {14}
    assert "below" in found["error"] and "--folder" in found["hint"]


def test_a_link_that_is_turned_after_the_look_is_not_followed(tmp_path: Path) -> None:
    from rekindle.web import assistant

    for name in ("inside", "outside"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.log").write_text(name, encoding="utf-8")
    link = tmp_path / "inside" / "x.log"
    trees.link(link, tmp_path / "inside" / "a.log")
    found = assistant._here(str(link), [(tmp_path / "inside").resolve()])
    link.unlink()
    trees.link(link, tmp_path / "outside" / "a.log")
    assert found.read_text(encoding="utf-8") == "inside"


def test_an_argument_that_a_tool_does_not_have_is_refused() -> None:
    """`plan` with a `cuda` answered another question than was asked; the server had no version."""

    async def asked() -> tuple[str, Any]:
        env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
        program = StdioServerParameters(command=sys.executable, args=["-m", "rekindle", "mcp"], env=env)
        async with stdio_client(program) as (reading, writing), ClientSession(reading, writing) as session:
            begun = await session.initialize()
            return begun.server_info.version, await session.call_tool("gpu", {"name": "K40c", "cuda": "12.6"})

    version, answer = asyncio.run(asked())
    assert version == __version__
    assert answer.is_error and "cuda" in answer.content[0].text
