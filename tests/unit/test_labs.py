"""A lab's machines: the fewest stacks that nobody regrets, and a lock for each."""

from __future__ import annotations

import json
import re
import shutil
from configparser import ConfigParser
from pathlib import Path

import pytest

from rekindle.core.errors import BadInput, NoRoute, NotFound, UsageError
from rekindle.stack import lab as lab_room
from rekindle.stack import nodes
from rekindle.stack import plan as lock
from rekindle.stack.from_machine import situation_here
from rekindle.stack.nodes import resolve_all
from rekindle.stack.resolver import resolve
from rekindle.stack.rules import RouteKind
from rekindle.stack.situation import Situation, Wish, situation_from_options
from support import labs
from support.command import rekindle_command

MACHINES = Path(__file__).parents[1] / "machines"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return labs.mixed(tmp_path_factory.mktemp("lab") / "nodes")


def places(folder: Path) -> dict[str, Situation]:
    return {file.stem: situation_here(snapshot=file) for file in sorted(folder.iterdir())}


def test_one_old_card_does_not_drag_the_others(lab: Path) -> None:
    found = nodes.resolve_all(places(lab), Wish())
    stacks = {node.name: f"{node.torch}+{node.variant}" for node in found.nodes}
    assert found.stacks == 3
    assert [name for name, stack in stacks.items() if stack == "2.3.1+cu118"] == ["node40"]
    assert [name for name, stack in stacks.items() if stack == "2.13.0+cu129"] == ["node36", "node37"]
    assert sum(stack == "2.14.1+cu126" for stack in stacks.values()) == 37
    kepler = next(each for each in found.apart if each.machines == ("node40",))
    assert (kepler.what, kepler.others, kepler.torch, kepler.releases) == ("Tesla K80", 37, "2.3.1", 11)


def test_within_a_wide_limit_they_share_what_serves_all(lab: Path) -> None:
    """With eleven releases allowed two stacks do; who can takes the RTX 5090's, which is nearer to its own."""
    found = nodes.resolve_all(places(lab), Wish(), within=11)
    assert found.stacks == 2
    assert {node.torch for node in found.nodes} == {"2.3.1", "2.13.0"}
    assert sum(node.torch == "2.3.1" for node in found.nodes) == 14
    assert {node.alone for node in found.nodes if node.torch == "2.3.1"} == {"2.14.1", None}


def test_equal_machines_are_one_question(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked_for = []
    real = nodes.resolve

    def counted(place: Situation, wish: Wish, *, as_it_is: bool) -> object:
        asked_for.append(place)
        return real(place, wish, as_it_is=as_it_is)

    monkeypatch.setattr(nodes, "resolve", counted)
    nodes.resolve_all(places(lab), Wish())
    assert len(asked_for) == len(labs.MIXED)


def test_the_table_has_a_line_for_each_stack_and_says_the_price(lab: Path) -> None:
    said = rekindle_command("plan", "--machine", str(lab)).out
    table, _, rest = said.partition("\n\n")
    assert max(map(len, table.splitlines())) <= 80
    lines = [line for line in table.splitlines() if not line.startswith(" ")]
    assert len(lines) == 2 + 3
    assert "80x A100-SXM4-80GB" in lines[2] and lines[4].endswith("2x Tesla K80")
    assert rest.count("torch==2.14.1+cu126") == 1
    assert "Tesla K80. It would cost the 37 other machines 11 releases" in " ".join(rest.split())


def test_a_machine_that_only_lacks_a_driver_is_told_so(tmp_path: Path) -> None:
    """As `plan` says it of that machine alone: what to change, and what it then gets."""
    shutil.copy(MACHINES / "no-driver-windows.json", tmp_path / "desk.json")
    shutil.copy(MACHINES / "rtx5070-windows.json", tmp_path / "other.json")
    said = rekindle_command("plan", "--machine", str(tmp_path)).out
    assert "desk: first install the driver 528.33 or newer" in said and "then the official wheel" in " ".join(
        said.split()
    )


@pytest.mark.long
def test_each_machine_finds_its_own_plan(lab: Path, tmp_path: Path) -> None:
    folder = tmp_path / "plans"
    for _ in range(2):  # a folder of plans is written again, nobody else's is
        seen = rekindle_command("plan", "--machine", str(lab), "-o", str(folder))
        assert seen.code == 0 and "wrote 5 files for 40 machines" in seen.err
    taken = {host: lab_room.own_plan(folder, host) for host in ("node01", "NODE40.lab.example.org", "node36")}
    plans = {host: lock.read(file) for host, file in taken.items()}
    assert [(plan.torch, plan.variant, plan.python) for plan in plans.values()] == [
        ("2.14.1", "cu126", "3.11"),
        ("2.3.1", "cu118", "3.10"),
        ("2.13.0", "cu129", "3.12"),
    ]
    # One plan for the machines that share it has the cards of all of them.
    names = [card.name for card in plans["node01"].cards]
    assert names == ["NVIDIA A100-SXM4-80GB", "NVIDIA GeForce RTX 3090", "Tesla V100-SXM2-32GB"]
    for plan in plans.values():
        assert lock.compare(plan).differences == ()


def test_a_build_for_two_kinds_of_cards_is_for_both(tmp_path: Path) -> None:
    (tmp_path / "nodes").mkdir()
    for name, card in (("old", "Tesla K40c"), ("older", "Tesla K80")):
        labs.save(tmp_path / "nodes" / f"{name}.json", card, 1, "470.256.02", "3.10.12")
    seen = rekindle_command(
        "plan", "--machine", str(tmp_path / "nodes"), "--torch", "2.7.1", "-o", str(tmp_path / "plans")
    )
    assert seen.code == 0
    plans = {host: lab_room.own_plan(tmp_path / "plans", host) for host in ("old", "older")}
    assert len(set(plans.values())) == 1
    plan = lock.read(plans["old"])
    assert (plan.route.value, plan.arch_list) == ("source-build", "3.5;3.7")
    assert any(str(plans["old"].name) in command for command in plan.commands)


def test_a_machine_that_is_not_listed_is_refused(lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "plans"
    folder.mkdir()
    index = folder / lab_room.INDEX
    with pytest.raises(NotFound, match=r"without `nodes\.toml`"):
        lab_room.own_plan(folder, "node01")
    assert rekindle_command("plan", "--machine", str(lab), "-o", str(folder)).code == 0
    monkeypatch.setattr("socket.gethostname", lambda: "stranger")
    seen = rekindle_command("install", "--plan", str(folder), "--dry-run")
    assert seen.code == NotFound.exit_code
    assert "this machine, `stranger`, is not in" in seen.err and "rekindle doctor --save stranger.json" in seen.err
    cases = (
        ('[hosts]\nbad = "../plan.toml"\n', "bad", BadInput, "leaves its folder"),
        ('[hosts]\n"a/n1" = "x.toml"\n"b/n1" = "y.toml"\n', "n1", UsageError, "several machines called"),
        ('[hosts]\n[without]\nk = "no driver"\n', "k", NoRoute, "no driver"),
        ('schema = "rekindle.lab/9"\n[hosts]\n', "k", BadInput, "rekindle.lab/9"),
    )
    for text, host, error, said in cases:
        index.write_text(text, encoding="utf-8")
        with pytest.raises(error, match=said):
            lab_room.own_plan(folder, host)


def test_a_form_is_written_for_each_stack_that_has_it(tmp_path: Path) -> None:
    (tmp_path / "nodes").mkdir()
    labs.save(tmp_path / "nodes" / "new.json", "Tesla V100-SXM2-32GB", 1, "550.90.07", "3.11.9")
    labs.save(tmp_path / "nodes" / "old.json", "Tesla K40c", 1, "470.256.02", "3.11.9")
    words = ("plan", "--machine", str(tmp_path / "nodes"), "--as", "requirements")
    assert rekindle_command(*words).code == 2
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("mine", encoding="utf-8")
    seen = rekindle_command(*words, "-o", str(mine))
    assert seen.code == 2 and "already exists" in seen.err
    assert [file.name for file in mine.iterdir()] == ["thesis.txt"]
    seen = rekindle_command(*words, "-o", str(tmp_path / "lists"))
    assert seen.code == NoRoute.exit_code
    assert "left out: old: the route is `source-build`" in seen.err
    made = tmp_path / "lists" / "torch-2.14.1-cu126-linux-py3.11.requirements.txt"
    with pytest.raises(UsageError, match=f"is no plan: `{re.escape(str(made))}`"):
        lab_room.own_plan(tmp_path / "lists", "new")
    assert "torch==2.14.1+cu126" in made.read_text(encoding="utf-8").splitlines()


@pytest.mark.long
def test_ansible_gets_groups_and_slurm_features(lab: Path, tmp_path: Path) -> None:
    groups = rekindle_command("plan", "--machine", str(lab), "--as", "ansible").out
    inventory = ConfigParser(allow_no_value=True)
    inventory.read_string(groups)
    hosts = [name for group in inventory.sections() if ":" not in group for name in inventory[group]]
    assert sorted(hosts) == [f"node{number:02}" for number in range(1, 41)]
    assert inventory["torch_2_3_1_cu118_linux_py3_10:vars"]["rekindle_plan"] == "torch-2.3.1-cu118-linux-py3.10.toml"
    slurm = rekindle_command("plan", "--machine", str(lab), "--as", "slurm").out.splitlines()
    assert [line.rpartition("=")[2] for line in slurm] == [
        "torch_2_14_1_cu126",
        "torch_2_13_0_cu129",
        "torch_2_3_1_cu118",
    ]
    assert slurm[1] == "NodeName=node36,node37 Features=torch_2_13_0_cu129"
    assert rekindle_command("plan", "--gpu", "V100", "--as", "slurm").code == 2
    for name in ("good", "evil ansible_host=elsewhere"):
        labs.save(tmp_path / f"{name}.json", "Tesla V100-SXM2-32GB", 1, "550.90.07", "3.11.9")
    seen = rekindle_command("plan", "--machine", str(tmp_path), "--as", "ansible")
    assert seen.code == 2 and "is not the name of a host" in seen.err


@pytest.mark.parametrize("form", ["ansible", "slurm"])
def test_what_a_list_of_machines_leaves_out_is_said_beside_it(tmp_path: Path, form: str) -> None:
    """A file that could not be read was "correct it there" and no more; a machine without a way was nothing."""
    labs.save(tmp_path / "good.json", "Tesla V100-SXM2-32GB", 1, "550.90.07", "3.11.9")
    (tmp_path / "broken.json").write_text("{}")
    bare = {"os": "linux", "arch": "x86_64", "gpus": [{"name": "Tesla K80"}, {"name": "GeForce RTX 5070"}]}
    (tmp_path / "odd.json").write_text(json.dumps({"schema": "rekindle.machine/1", "machine": bare}))
    seen = rekindle_command("plan", "--machine", str(tmp_path), "--as", form)
    assert "good" in seen.out and "odd" not in seen.out
    assert "broken.json" in seen.err and "odd: no driver drives all of these cards" in seen.err


def test_equal_cards_of_a_machine_are_said_once(tmp_path: Path) -> None:
    labs.save(tmp_path / "node.json", "Tesla K80", 2, "470.256.02", "3.10.12")
    said = rekindle_command("plan", "--machine", str(tmp_path / "node.json")).out
    assert said.startswith("2 x Tesla K80 (3.7) on ")
    assert said.count("not supported on this GPU") == 1 and "not supported on Tesla" not in said


def test_a_folder_with_one_machine_gets_a_folder_of_plans(tmp_path: Path) -> None:
    (tmp_path / "nodes").mkdir()
    labs.save(tmp_path / "nodes" / "first.json", "Tesla V100-SXM2-32GB", 1, "550.90.07", "3.11.9")
    assert rekindle_command("plan", "--machine", str(tmp_path / "nodes"), "-o", str(tmp_path / "plans")).code == 0
    assert lock.read(lab_room.own_plan(tmp_path / "plans", "first")).torch == "2.14.1"


def test_a_lab_that_nothing_serves_is_not_told_to_install(tmp_path: Path) -> None:
    (tmp_path / "nodes").mkdir()
    text = '{"schema": "rekindle.machine/1", "machine": {"os": "linux", "arch": "x86_64"}}'
    (tmp_path / "nodes" / "node1.json").write_text(text, encoding="utf-8")
    seen = rekindle_command("plan", "--machine", str(tmp_path / "nodes"), "-o", str(tmp_path / "plans"))
    said = " ".join(seen.err.split())
    assert "no plan was written" in said and "0 files" not in said and "rekindle install" not in said


def test_a_labs_list_says_where_the_systems_own_python_refuses_pip() -> None:
    place = situation_from_options(["RTX 3090"], system="Ubuntu 24.04")
    found = resolve_all({"a": place}, Wish())
    assert "takes nothing from pip" in found.nodes[0].notes[0]


def test_a_machine_of_a_lab_gets_what_it_gets_alone(tmp_path: Path) -> None:
    """A T4 was sent to hours of building, where plan gives it a wheel that lacks one operation, and says so."""
    there = situation_from_options(["Tesla T4"], system="linux", driver="580.95.05")
    wish = Wish(torch="2.15.0")
    found = resolve_all({"a": there}, wish).nodes[0]
    alone = resolve(there, wish).recommended
    assert (found.route, found.variant) == (alone.route, alone.variant) == (RouteKind.OFFICIAL_WHEEL, "cu132")
    assert found.notes == tuple(f"loses: {each}" for each in alone.loses) != ()


def test_the_tenth_machine_comes_behind_the_ninth(tmp_path: Path) -> None:
    for number in (10, 9, 2):
        labs.save(tmp_path / f"n{number}.json", "Tesla V100-SXM2-32GB", 1, "550.90.07", "3.11.9")
    assert "NodeName=n2,n9,n10 " in rekindle_command("plan", "--machine", str(tmp_path), "--as", "slurm").out


def test_a_node_whose_python_is_too_old_for_rekindle_is_told_the_lines(tmp_path: Path) -> None:
    (tmp_path / "nodes").mkdir()
    machine = '{"os": "Ubuntu 20.04", "arch": "x86_64", "gpus": [{"name": "K80"}]}'
    text = f'{{"schema": "rekindle.machine/1", "machine": {machine}}}'
    (tmp_path / "nodes" / "old.json").write_text(text, encoding="utf-8")
    labs.save(tmp_path / "nodes" / "new.json", "Tesla V100-SXM2-32GB", 1, "550.90.07", "3.11.9")
    seen = rekindle_command("plan", "--machine", str(tmp_path / "nodes"), "-o", str(tmp_path / "plans"))
    assert "on old the lines above: Rekindle needs Python 3.10 or newer" in seen.err
