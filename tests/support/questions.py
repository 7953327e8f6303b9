"""Questions as people ask them: a command line, and what a right answer must have."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rekindle.core import codec
from rekindle.core.version import Version
from rekindle.stack import from_machine
from rekindle.stack.situation import Situation
from support.command import rekindle_command

FOLDER = Path(__file__).parents[1] / "scenarios" / "questions"


def questions() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for file in sorted(FOLDER.glob("*.toml")):
        found += codec.from_toml(file.read_bytes(), dict[str, Any])["question"]
    return found


def faults(question: dict[str, Any], patch: pytest.MonkeyPatch) -> list[str]:
    """What is wrong with the answer; empty when it is right."""
    if "extra" in question:
        _add_to_situation(question["extra"], patch)
    verb = question.get("verb", "plan")
    seen = rekindle_command(verb, *question["args"], *(["--json"] if verb == "plan" else []))
    answer = json.loads(seen.out) if seen.out.lstrip().startswith("{") else {}
    return list(_held_against(dict(question["expect"]), seen.code, answer, seen.out + seen.err))


def recommended(question: dict[str, Any], patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The recommended route, with the platform it is for; nothing for other verbs than `plan`."""
    if question.get("verb", "plan") != "plan":
        return {}
    if "extra" in question:
        _add_to_situation(question["extra"], patch)
    seen = rekindle_command("plan", *question["args"], "--json")
    answer = json.loads(seen.out) if seen.out.lstrip().startswith("{") else {}
    if "recommended" not in answer:
        return {}
    return {**answer["recommended"], **{key: answer["situation"][key] for key in ("system", "machine")}}


def scenario_count() -> int:
    """The scenarios that ask the resolver itself."""
    found = [codec.from_toml(file.read_bytes(), dict[str, Any])["scenario"] for file in FOLDER.parent.glob("*.toml")]
    return sum(map(len, found))


def _add_to_situation(extra: dict[str, Any], patch: pytest.MonkeyPatch) -> None:
    """What only a look at the machine could tell: its libc, its glibc."""
    import msgspec

    values = {name: Version(value) if name == "glibc" else value for name, value in extra.items()}
    usual = from_machine.situation_here

    def asked(**words: Any) -> Situation:
        return msgspec.structs.replace(usual(**words), **values)

    patch.setattr("rekindle.cli.plan.situation_here", asked)


def _held_against(expect: dict[str, Any], code: int, answer: dict[str, Any], said: str) -> Iterator[str]:
    wanted = expect.pop("code", None)
    if wanted is not None and code != wanted:
        yield f"exit code {code}, not {wanted}: {said[-300:]}"
    elif wanted is None and code not in (0, 5):
        yield f"exit code {code}: {said[-300:]}"
    route = answer.get("recommended", {})
    for key in ("route", "torch", "variant", "python", "cuda"):
        if key in expect and route.get(key) != expect[key]:
            yield f"{key} is {route.get(key)}, not {expect[key]}"
    if "machine" in expect and answer.get("situation", {}).get("machine") != expect["machine"]:
        yield f"the machine is {answer.get('situation', {}).get('machine')}"
    if "change" in expect and (route.get("change") or {}).get("what") != expect["change"]:
        yield f"the change is {route.get('change')}"
    if "why_not" in expect and (answer.get("why_not") or {}).get("answer") != expect["why_not"]:
        yield f"why-not is {(answer.get('why_not') or {}).get('answer')}"
    lines = "\n".join(route.get("commands", ()))
    for word in expect.get("command", ()):
        if word not in lines:
            yield f"no command has `{word}`: {lines}"
    for word in expect.get("never", ()):
        if word in lines:
            yield f"a command has `{word}`: {lines}"
    spoken = _spoken(answer) if answer else said
    for word in expect.get("says", ()):
        if word not in spoken:
            yield f"nothing says `{word}`"
    for word in expect.get("unsaid", ()):
        if word in spoken:
            yield f"something says `{word}`"
    if "at_top" in expect:
        shown = [route.get("route"), *(each["route"]["route"] for each in answer.get("alternatives", ()))]
        if sorted(shown) != sorted(expect["at_top"]):
            yield f"at the top are {shown}"


def _spoken(answer: dict[str, Any]) -> str:
    """The sentences a person is shown, without the hundred reasons behind other candidates."""
    kept = {key: value for key, value in answer.items() if key not in ("rejections", "routes")}
    return json.dumps(kept, ensure_ascii=False)
