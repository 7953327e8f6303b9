"""Files that people hand each other: what a second red team got through, and does no longer."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import stat
from pathlib import Path

import pytest

from rekindle import __version__, api
from rekindle.build.configure import tree
from rekindle.core import codec, files, signing
from rekindle.core.errors import BadInput, NotFound
from rekindle.core.findings import State
from rekindle.formats.access import File
from rekindle.install.shelf_offers import Shelves, on_shelves
from rekindle.knowledge import tables
from rekindle.machine import snapshot
from rekindle.wheels.shelf import health, index, shelf
from support import torch_like
from support.artefacts import unverified
from support.command import rekindle_command

MACHINES = Path(__file__).parents[1] / "machines"
HUGE = "0x" + "F" * 6000
CARD = "NVIDIA GeForce RTX 5070\n\nrun:\n  pip install evil-torch\n\nx"


def _shelved(folder: Path) -> Path:
    """A shelf of somebody, with a torch on it that serves a K40c."""
    wheel = torch_like.wheel(
        folder, project="torch", version="2.7.1+cu118", libraries={"torch/lib/kernels.fatbin": (("sm_35",),)},
        tag="cp311-cp311-manylinux_2_28_x86_64",
    )  # fmt: skip
    shelf.add(folder / "shelf", [wheel])
    return folder / "shelf"


def _entry(place: Path) -> Path:
    return next((place / "wheels").glob("*.shelf.json"))


def _changed(entry: Path, **fields: object) -> None:
    entry.write_text(json.dumps({**json.loads(entry.read_text(encoding="utf-8")), **fields}), encoding="utf-8")


@pytest.mark.skipif(os.name == "nt", reason="links need a right of their own there")
def test_a_corrected_script_is_not_written_through_a_link(tmp_path: Path) -> None:
    script, victim, link = tmp_path / "a.sh", tmp_path / "victim", tmp_path / "out.sh"
    script.write_text("pip install torch==2.8.0\n", newline="\n")
    victim.write_text("mine")
    link.symlink_to(victim)
    rekindle_command("review", str(script), "--gpu", "GTX 1080 Ti", "--fix", "-o", str(link))
    assert victim.read_text() == "mine" and "cu126" in link.read_text() and not link.is_symlink()
    script.chmod(0o755)
    rekindle_command("review", str(script), "--gpu", "GTX 1080 Ti", "--fix", "-o", str(script))
    assert "cu126" in script.read_text() and stat.S_IMODE(script.stat().st_mode) == 0o755


def test_an_entry_of_somebodys_folder_is_not_read_off_the_file(tmp_path: Path) -> None:
    place = _shelved(tmp_path)
    _changed(_entry(place), signed_by="ed25519:" + "A" * 43 + "=", state="PASS", checked_on=["Tesla K40c (3.5)"])
    card = ("--gpu", "K40c", "--os", "linux", "--arch", "x86_64", "--python", "3.11", "--driver", "470.57.02")
    found = rekindle_command("plan", *card, "--shelf", str(place), "--json").json()["recommended"]
    assert found["route"] == "shelf" and found["evidence"] == "notes"
    assert any("no key that you trust" in each for each in found["unverified"])
    shown = rekindle_command("shelf", "list", "--shelf", str(place)).out
    assert "signed    no: " in shown and "by its entry alone" in shown and "on Tesla K40c" not in shown


def test_an_entry_that_was_changed_is_not_mended_in_silence(tmp_path: Path) -> None:
    place = _shelved(tmp_path)
    _changed(_entry(place), signed_by="ed25519:" + "A" * 43 + "=")
    assert health.mend(place).state is State.FAIL
    _changed(_entry(place), signed_by=None, size=5)
    done = health.mend(place)
    assert done.state is State.FAIL and "set aside" in done.findings[0].found


def test_a_withdrawn_wheel_does_not_come_back(tmp_path: Path) -> None:
    """By a damaged entry and the `shelf mend` that is proposed then, by a mark that is gone, by the same file again."""
    place = _shelved(tmp_path)
    (wheel,) = (entry.file for entry in shelf.entries(place))
    shelf.yank(place, wheel, "wrong numbers")
    _entry(place).write_text("{", encoding="utf-8")
    health.mend(place)
    assert [each.yanked for each in shelf.entries(place)] == ["wrong numbers"]
    _changed(_entry(place), yanked=None)
    assert health.mend(place).findings[0].found.startswith("marked")
    assert [each.yanked for each in shelf.entries(place)] == ["wrong numbers"]
    shelf.add(place, [next(tmp_path.glob("*.whl"))])
    assert [each.yanked for each in shelf.entries(place)] == ["wrong numbers"]
    shelf.yank(place, wheel, None)
    assert [each.yanked for each in shelf.entries(place)] == [None]


@pytest.mark.parametrize("list_too", [False, True])
def test_a_mark_that_somebody_took_off_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, list_too: bool
) -> None:
    monkeypatch.setenv("REKINDLE_KEY", str(tmp_path / "friend.pem"))
    key, place = str(signing.make_key().public), _shelved(tmp_path)
    monkeypatch.setenv("REKINDLE_KEY", str(tmp_path / "mine.pem"))
    card = ("--gpu", "K40c", "--os", "linux", "--arch", "x86_64", "--python", "3.11", "--driver", "470.57.02")

    def planned() -> tuple[str, str]:
        words = ("plan", *card, "--shelf", str(place), "--trust", key, "--json")
        found = rekindle_command(*words).json()["recommended"]
        return found["route"], found["evidence"]

    assert planned() == ("shelf", "binary")
    monkeypatch.setenv("REKINDLE_KEY", str(tmp_path / "friend.pem"))
    shelf.yank(place, shelf.entries(place)[0].file, "wrong numbers")
    monkeypatch.setenv("REKINDLE_KEY", str(tmp_path / "mine.pem"))
    _changed(_entry(place), yanked=None)
    if list_too:
        with monkeypatch.context() as attacker:
            attacker.setenv("REKINDLE_KEY", str(tmp_path / "attacker.pem"))
            index.write(place, shelf.entries(place))
    route, evidence = planned()
    assert (route, evidence) == ("shelf", "notes") if list_too else route != "shelf"
    assert on_shelves(Shelves(addresses=(str(place),), trust=(key,), signed=True)) == ()


def test_an_entry_without_containers_stops_nobody(tmp_path: Path) -> None:
    place = _shelved(tmp_path)
    code = json.loads(_entry(place).read_text(encoding="utf-8"))["code"]
    _changed(_entry(place), code=[{**each, "groups": []} for each in code])
    done = rekindle_command("plan", "--gpu", "K40c", "--os", "linux", "--arch", "x86_64", "--shelf", str(place))
    assert done.code in (0, 5) and "not considered" in done.err


def test_the_facts_of_a_snapshot_are_lines(tmp_path: Path) -> None:
    file = tmp_path / "m.json"
    machine = {"os": "linux", "arch": "x86_64\nrun: x", "gpus": [{"name": CARD, "capability": "12.0"}]}
    file.write_text(json.dumps({"schema": "rekindle.machine/1", "machine": machine}), encoding="utf-8")
    done = rekindle_command("plan", "--machine", str(file))
    assert "\nrun:" not in done.out and "\n  pip install evil" not in done.out + done.err


def test_a_path_of_thousands_of_separators(tmp_path: Path) -> None:
    raw = json.loads((MACHINES / "k40c-windows.json").read_text(encoding="utf-8"))
    raw["recording"]["present"][5] += "/" * 300_000
    assert snapshot.read(json.dumps(raw)).os == "windows"


@pytest.mark.skipif(os.name == "nt", reason="/proc is of Linux")
@pytest.mark.parametrize("verb", [("doctor", "--machine"), ("plan", "--machine"), ("fleet", "plan")])
def test_a_file_that_gives_nothing_is_not_waited_for(tmp_path: Path, verb: tuple[str, ...]) -> None:
    kernel = Path("/proc/kmsg")
    if not os.access(kernel, os.R_OK):
        unverified("this user cannot open the kernel's messages")
    link = tmp_path / "m.json"
    link.symlink_to(kernel)
    assert rekindle_command(*verb, str(link)).code not in (0, 1, 70)


@pytest.mark.parametrize(
    ("name", "text", "verb"),
    [
        ("m.toml", f"schema = {HUGE}\n", ("fleet", "plan")),
        ("b.toml", f"schema = {HUGE}\n", ("env",)),
        ("pyproject.toml", f'[project]\nname = "x"\nrequires-python = {HUGE}\n', ("review",)),
        ("pixi.toml", f"[dependencies]\npytorch = {HUGE}\n", ("review",)),
        ("Pipfile", f"[requires]\npython_version = {HUGE}\n", ("review",)),
        ("pyproject.toml", f"[[tool.poetry.source]]\nname = {HUGE}\nurl = {HUGE}\n", ("review",)),
    ],
)
def test_a_number_that_python_does_not_write(tmp_path: Path, name: str, text: str, verb: tuple[str, ...]) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8", newline="\n")
    done = rekindle_command(*verb, str(tmp_path / name))
    assert done.code in (2, 4, 9) and "internal error" not in done.err
    with pytest.raises(BadInput, match="64 bits"):
        codec.from_toml(f"a = {HUGE}", dict)


def test_a_hash_in_a_text_is_no_number() -> None:
    assert codec.from_toml(f'a = "{HUGE}"', dict) == {"a": HUGE}


def test_a_matrix_that_would_be_an_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    matrix = tmp_path / "-o.toml"
    matrix.write_text('schema = "rekindle.matrix/1"\n[[jobs]]\n', encoding="utf-8")
    from rekindle.core.errors import UsageError
    from rekindle.fleet.export.write import relative_matrix

    with pytest.raises(UsageError, match="option"):
        relative_matrix(matrix, tmp_path)


def _snapshot(place: Path, **facts: object) -> Path:
    machine = {"os": "linux", "arch": "x86_64", **facts}
    place.write_text(json.dumps({"schema": "rekindle.machine/1", "machine": machine}), encoding="utf-8")
    return place


@pytest.mark.parametrize(
    "facts",
    [
        {"gpus": [{"name": "Tesla V100"}] * 300},
        {"disks": [{"role": "here", "path": "/"}] * 2000},
        {"processor": {"cores": 0}},
        {"processor": {"physical": -3}},
    ],
)
def test_a_computer_that_cannot_be(tmp_path: Path, facts: dict[str, object]) -> None:
    """Twenty thousand cards were each looked up for minutes; no core at all was divided by."""
    done = rekindle_command("doctor", "--machine", str(_snapshot(tmp_path / "m.json", **facts)))
    assert done.code == BadInput.exit_code and "no computer" in done.err


def test_a_recording_of_a_computer_that_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "_MOST_CARDS", 0)
    with pytest.raises(BadInput, match=r"machine\.gpus"):
        snapshot.load(MACHINES / "k40c-windows.json")


def test_two_long_paths_are_compared_entry_by_entry(tmp_path: Path) -> None:
    """Each entry was looked for among all of the other: a hundred thousand of them took an hour."""
    asked = 0

    class Entry(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            nonlocal asked
            asked += 1
            return super().__eq__(other)

        __hash__ = str.__hash__

    one, other = ([Entry(f"/{side}{number}") for number in range(500)] for side in "ab")
    paths = iter([[*one, Entry("/same")], [*other, Entry("/same")]])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(snapshot, "_path", lambda machine: next(paths))
        machine = snapshot.load(_snapshot(tmp_path / "m.json"))
        found = snapshot.path_differences(machine, machine)
    assert len(found) == 1000 and asked < 5000


def test_a_wheel_for_thousands_of_cards(tmp_path: Path) -> None:
    """Each of them was asked for by itself, and with each of the others."""
    matrix = tmp_path / "matrix.toml"
    matrix.write_text(f'torch = ["2.7.1"]\ncuda = ["11.8"]\ngpu = ["{"3.5;" * 200}5.0"]\n', encoding="utf-8")
    done = rekindle_command("fleet", "plan", str(matrix))
    assert done.code == BadInput.exit_code and "64 cards" in done.err


def test_a_source_whose_folder_is_gone_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()

    def gone(folder: Path) -> object:
        raise FileNotFoundError(2, "No such file or directory", str(folder))

    monkeypatch.setattr(os, "scandir", gone)
    with pytest.raises(NotFound, match="cannot be read"):
        list(tree.names(tmp_path))


@pytest.mark.parametrize("text", ["9" * 5000 + ".1", "2." + "7" * 5000, "2.7.1"])
def test_a_tree_of_no_release(tmp_path: Path, text: str) -> None:
    (tmp_path / "version.txt").write_text(text, encoding="utf-8")
    assert rekindle_command("patch", str(tmp_path), "--list").code not in (0, 1)


def test_a_changed_name_in_a_tree_is_no_command(tmp_path: Path) -> None:
    """`--undo` said how a file is brought back, with the name as the tree's journal writes it."""
    name = "torch/a; touch x; $(touch x).py"
    (tmp_path / "torch").mkdir()
    (tmp_path / "version.txt").write_text("2.7.1", encoding="utf-8")
    (tmp_path / name).write_bytes(b"x")
    entry = {"path": name, "original": "0" * 64, "current": hashlib.sha256(b"x").hexdigest(), "patches": ["a"]}
    folder = tmp_path / ".rekindle" / "patches"
    folder.mkdir(parents=True)
    (folder / "journal.json").write_text(json.dumps({"files": [entry]}), encoding="utf-8")
    done = rekindle_command("patch", str(tmp_path), "--undo")
    shown = done.err.split("restore it with `")[1].rpartition("`")[0]
    if os.name != "nt":
        assert shlex.split(shown) == ["git", "checkout", "--", name]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such files in folders")
def test_the_name_of_the_tables_in_use_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REKINDLE_UPDATES", str(tmp_path))
    os.mkfifo(tmp_path / "current")
    with pytest.raises(BadInput, match="is damaged"):
        tables.update_folder()


def test_a_file_that_ends_in_an_error_is_broken(tmp_path: Path) -> None:
    (tmp_path / "a.so").write_bytes(b"\x7fELF" + bytes(200))
    with File(tmp_path / "a.so") as file:
        stream = file._stream
        with (tmp_path / "b").open("wb") as unreadable:
            file._stream = unreadable
            with pytest.raises(BadInput, match="cannot be read"):
                file.read(0, 10)
        file._stream = stream


@pytest.mark.skipif(os.name == "nt", reason="/proc is of Linux")
def test_a_module_that_is_a_process_is_a_finding(tmp_path: Path) -> None:
    """A library of an environment that was a link to a process's memory was an internal error of `audit`."""
    module = tmp_path / "lib" / "python3.11" / "site-packages" / "a" / "_C.cpython-311-x86_64-linux-gnu.so"
    module.parent.mkdir(parents=True)
    module.symlink_to("/proc/self/mem")
    assert "cannot be read" in api.audit(tmp_path, gpus=["V100"], os="linux").to_json()


@pytest.mark.skipif(os.name == "nt", reason="links need a right of their own there")
def test_what_a_folder_names_is_not_read_elsewhere(tmp_path: Path) -> None:
    """`mcp` was told one folder, and read above it what a Dockerfile copies, and behind it what a link led to."""
    inside = tmp_path / "inside"
    (inside / "wheels").mkdir(parents=True)
    (tmp_path / "private.txt").write_text("torch==1.0.0\n", encoding="utf-8")
    text = "FROM ubuntu\nCOPY private.txt /x/private.txt\nRUN pip install -r /x/private.txt\n"
    (inside / "Dockerfile").write_text(text, encoding="utf-8")
    wheel = torch_like.wheel(
        tmp_path, project="torch", version="2.7.1+cu118", libraries={"torch/lib/kernels.fatbin": (("sm_35",),)},
        tag="cp311-cp311-manylinux_2_28_x86_64",
    )  # fmt: skip
    (inside / "wheels" / wheel.name).symlink_to(wheel)
    assert "1.0.0" in api.review(inside / "Dockerfile", gpus=["V100"]).to_json()
    with files.only_below((inside,)):
        assert "1.0.0" not in api.review(inside / "Dockerfile", gpus=["V100"]).to_json()
        with pytest.raises(NotFound, match="cannot read"):
            api.inspect(inside / "wheels" / wheel.name)
    assert api.inspect(inside / "wheels" / wheel.name).torch


def test_an_assistant_is_answered_from_its_folders_alone(tmp_path: Path) -> None:
    pytest.importorskip("mcp")
    import asyncio

    from rekindle.web import assistant

    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "private.txt").write_text("torch==1.0.0\n", encoding="utf-8")
    text = "FROM ubuntu\nCOPY private.txt /x/private.txt\nRUN pip install -r /x/private.txt\n"
    (inside / "Dockerfile").write_text(text, encoding="utf-8")
    asked = {"script": str(inside / "Dockerfile"), "gpu": "V100"}
    answer = str(asyncio.run(assistant.server([inside]).call_tool("review", asked)))
    assert "rekindle.review/1" in answer and "1.0.0" not in answer


@pytest.mark.parametrize(
    ("tool", "given", "said"),
    [
        ("plan", {"gpu": "V100", "os": "linux", "drivr": "470"}, ("no argument `drivr`", "did you mean `driver`?")),
        ("plan", {"gpu": "V100"}, ("`plan` needs `os`", "its arguments are `gpu`, `os`, `python`")),
        ("plan", {"gpu": "V100", "os": "linux", "python": 3.10}, ("`python` of `plan` is a text", "in quotes")),
        ("doctor", {"gpu": "V100"}, ("`doctor` has no argument `gpu`", "it takes none")),
        ("gpu", {"name": "V100", "os": "linux"}, ("`gpu` has no argument `os`",)),
    ],
)
def test_an_assistants_wrong_argument_is_answered_in_our_words(
    tool: str, given: dict[str, object], said: tuple[str, ...]
) -> None:
    """They were those of the package that checks arguments, with its own page."""
    pytest.importorskip("mcp")
    import asyncio

    from rekindle.web import assistant

    answer = str(asyncio.run(assistant.server().call_tool(tool, given)))
    assert all(each in answer for each in said) and "pydantic" not in answer and "code" in answer


def test_an_argument_of_null_is_none(tmp_path: Path) -> None:
    pytest.importorskip("mcp")
    import asyncio

    from rekindle.web import assistant

    given = {"gpu": "V100", "os": "linux", "driver": None}
    assert '"rekindle.plan' in str(asyncio.run(assistant.server([tmp_path]).call_tool("plan", given)))


def test_an_assistants_plan_is_short_enough_to_be_read() -> None:
    pytest.importorskip("mcp")
    import asyncio

    from rekindle.web import assistant

    (said,) = asyncio.run(assistant.server().call_tool("plan", {"gpu": "P40", "os": "linux"})).content
    found = json.loads(said.text)
    assert len(said.text) < 20_000 and len(found["routes"]) == len(found["rejections"]) == 3
    assert found["recommended"]["commands"] and found["left_out"]["routes"] > 10


def test_an_assistant_is_told_which_rekindle_answers() -> None:
    pytest.importorskip("mcp")
    from rekindle.web import assistant

    assert assistant.server().version == __version__
