"""The site: its answers are the resolver's, and a name means on it what the command line takes it for."""

from __future__ import annotations

import json
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from rekindle.core import codec
from rekindle.core.errors import BadInput, RekindleError
from rekindle.knowledge.gpu import gpus
from rekindle.knowledge.logs import signatures
from rekindle.stack.route import OtherWay
from rekindle.web import answers, page, site, spellings
from rekindle.web.answers import CARD, DRIVER
from rekindle.web.site import cards_index
from support import trees
from support.artefacts import unverified

SEED = 20261115


@pytest.fixture(scope="module")
def classes() -> tuple[answers.CardClass, ...]:
    return answers.classes()


@pytest.mark.long
def test_every_card_is_in_exactly_one_class(classes: tuple[answers.CardClass, ...]) -> None:
    every = [name for each in classes for name in each.names]
    assert len(every) == len(set(every)) > 800
    assert len(classes) < 60


@pytest.mark.long
def test_a_card_that_is_sold_with_an_arm_processor_is_not_in_the_class_of_others(
    classes: tuple[answers.CardClass, ...],
) -> None:
    of = {name: each.id for each in classes for name in each.names}
    assert of["GH200 480GB"] != of["H100 80GB HBM3"]


@pytest.mark.long
@pytest.mark.parametrize("name", ["Tesla K80", "Quadro RTX 4000"])
def test_what_is_looked_up_is_what_the_resolver_says(
    classes: tuple[answers.CardClass, ...], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "pythons", lambda: ("", "3.11"))
    cards = next(each for each in classes if name in each.names)
    kept = answers.answers_of(cards, "linux")
    draw = random.Random(SEED)
    for _ in range(8):
        driver = draw.choice(["", f"{draw.randint(418, 610)}.{draw.randint(10, 99)}"])
        python = draw.choice(["", "3.11"])
        found = codec.to_json(answers.looked_up(kept, python, driver), indent=0)
        expected = answers.shown(answers.verdict(name, "linux", python or None, driver or None))
        own = answers.verdict(name, "linux", None, None).situation.cards[0].notes
        plain = json.loads(codec.to_json(expected, indent=0))
        plain["notes"] = [note for note in plain.get("notes", []) if note not in own]
        seen = {"notes": [], **json.loads(found.replace(CARD, name).replace(DRIVER, driver))}
        several = seen.pop("several", [])
        assert seen == plain, (python, driver)
        two = answers.verdict(f"2x {name}", "linux", python or None, driver or None).notes
        assert [note for note in two if note not in own] == [*several, *plain["notes"]], (python, driver)


@pytest.mark.long
def test_cards_with_several_chips_share_an_answer_but_not_the_ids(
    classes: tuple[answers.CardClass, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page for a GeForce 710M named the PCI ids of another card with the same chips."""
    monkeypatch.setattr(answers, "pythons", lambda: ("",))
    monkeypatch.setattr(answers, "driver_steps", lambda _: ("", "0", "470"))
    cards = next(each for each in classes if "GeForce 710M" in each.names)
    kept = answers.looked_up(answers.answers_of(cards, "linux"), "", "")
    for name in ("GeForce 710M", cards.sample):
        expected = answers.shown(answers.verdict(name, "linux", None, None))
        assert answers.filled(kept, name).best == expected.best and "10de:" in expected.best.change
    index = cards_index([cards])
    number = index["names"].index("GeForce 710M")
    assert index["which"][number] == answers.shown(answers.verdict("GeForce 710M", "linux", None, None)).best.change


@pytest.mark.long
def test_packed_answers_come_out_as_they_went_in(classes: tuple[answers.CardClass, ...]) -> None:
    answer = answers.shown(answers.verdict("Tesla K80", "windows", "3.11", None))
    kept = answers.Answers(drivers=("",), cells={"": (0,)}, answers=(answer, answer))
    packed = answers.packed(kept)

    def unpacked(value: Any) -> Any:
        if isinstance(value, bool) or value is None:
            return value
        if isinstance(value, int):
            return packed.texts[value]
        if isinstance(value, dict):
            return {key: unpacked(each) for key, each in value.items()}
        return [unpacked(each) for each in value]

    assert unpacked(packed.answers) == json.loads(codec.to_json([answer, answer], indent=0))
    assert len(set(packed.texts)) == len(packed.texts)


def test_two_routes_are_both_shown_with_cost_and_loss() -> None:
    found = answers.verdict("Tesla K80", "linux", "3.11", None)
    assert len(found.routes) > 1
    quick = msgspec.structs.replace(found.routes[1], loses=("cuDNN",))
    both = answers.shown(msgspec.structs.replace(found, alternatives=(OtherWay(wins="newest", route=quick),)))
    ((wins, other),) = both.alternatives
    assert wins == "newest" and other.loses == ("cuDNN",) and other.takes and both.best.takes
    assert [form.name for form in other.forms] == ["pip", "uv", "conda"]
    assert both.advice and both.lacks


@pytest.mark.long
def test_the_pages_of_one_kind_of_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "pythons", lambda: ("", "3.11"))
    monkeypatch.setattr(answers, "driver_steps", lambda _: ("", "0", "470", "550"))
    monkeypatch.setattr(
        site, "grid", lambda system: site.Grid(system=system, releases=("2.7.1",), lines=("cu118",), rows=())
    )
    made = site.write_site(tmp_path, only=["Tesla K80"])
    assert made.cards == 1
    text = (tmp_path / "gpu/tesla-k80.html").read_text(encoding="utf-8")
    assert "PyTorch for Tesla K80" in text and CARD not in text and "How to use it" in text
    index = (tmp_path / "data/cards.js").read_text(encoding="utf-8")
    data = json.loads(index.removeprefix("REKINDLE.cards(").removesuffix(");\n"))
    assert data["names"][abs(data["keys"]["k80"]) - 1] == "Tesla K80"
    for html in tmp_path.rglob("*.html"):
        text = html.read_text(encoding="utf-8")
        assert "Content-Security-Policy" in text and "'unsafe-" not in text
        assert not re.search(r"<script(?! src=| type=\"application/json\")|\son\w+=", text), html


@pytest.mark.long
def test_processes_give_the_answers_of_one(
    classes: tuple[answers.CardClass, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a pool is asked, and in which order, without the minutes that real ones take."""
    asked: list[tuple[int, str]] = []

    class Pool:
        def __init__(self, jobs: int, *rest: Any) -> None:
            self.jobs = jobs

        def __enter__(self) -> Pool:
            return self

        def __exit__(self, *error: object) -> None:
            return None

        def map(self, ask: Any, every: list[answers.CardClass]) -> list[Any]:
            asked.extend((self.jobs, each.id) for each in every)
            return [ask(each) for each in every]

    monkeypatch.setattr(site, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr(answers, "answers_of", lambda cards, system: (cards.id, system))
    chosen = list(classes[:3])
    assert list(site._answered(chosen, 64)) == list(site._answered(chosen, 1))
    assert asked == [(3, each.id) for each in chosen]


def test_the_computer_that_makes_the_site_is_not_in_its_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made on an Arm machine the answers had a note about that machine."""
    from rekindle.core import paths

    for own in ("x86_64", "aarch64"):
        monkeypatch.setattr(paths, "architecture", lambda own=own: own)
        found = answers.verdict("GeForce GTX 1080 Ti", "linux", None, None)
        assert found.notes == () and found.situation.arch == "x86_64"


def test_code_in_a_sentence_is_marked_and_nothing_else() -> None:
    assert page.sentence("run `a <b> {c}` & go") == "run <code>a &lt;b&gt; {c}</code> &amp; go"
    assert page.gaps("set `X={arch}`") == "set <code>X=<var>ARCH</var></code>"
    for cause in signatures.causes():
        text = page.render_linked("cause.html", root="../", cause=cause)
        assert not re.search(r"[^\\$]\{[a-z_]+\}", text.partition("<h2>What to do</h2>")[2].partition("<h2>")[0]), (
            cause.id
        )


def test_a_name_with_quotes_and_tags_stays_text() -> None:
    name = "Evil\" <script>alert(1)</script> ' & Ti"
    cards = answers.CardClass(id="c0", key="", capabilities=("6.1",), architecture="Pascal", names=(name,))
    text = site.card_page(name, cards, {"linux": answers.shown(answers.verdict("GTX 1080 Ti", "linux", None, None))})
    assert "<script>alert" not in text
    assert "Evil&#34; &lt;script&gt;" in text


def test_a_cell_of_the_grid_has_the_resolvers_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = tuple(each for each in gpus.gpus() if str(each.capability) in ("2.0", "3.7", "6.1"))
    # The page's own view of the table alone: the resolver's index of names is made from the whole one.
    monkeypatch.setattr(site, "gpus", SimpleNamespace(gpus=lambda: chosen))
    found = site.grid("windows")
    rows = {row.capability: {cell.torch: cell for cell in row.cells} for row in found.rows}
    newest = found.releases[0]
    assert rows["3.7"][newest].state == "no" and "driver" in rows["3.7"][newest].why
    assert {cell.state for cell in rows["2.0"].values()} == {"no"} and rows["2.0"][newest].why
    assert any(cell.state == "yes" and "cu126" in cell.lines for cell in rows["6.1"].values())
    text = site.matrix_page({"windows": found})
    assert text.count("<td class=") == 3 * len(found.releases)
    shared = json.loads(re.findall(r'id="shared">(.*?)</script>', text)[0])
    assert len(set(shared["why"])) == len(shared["why"]) and rows["3.7"][newest].why in shared["why"]


@pytest.mark.long
def test_names_typed_loosely_mean_what_the_command_line_takes_them_for(
    classes: tuple[answers.CardClass, ...], tmp_path: Path
) -> None:
    """names.js itself, in Node, against the reader of the command line."""
    node = shutil.which("node")
    if node is None:
        unverified("no Node is installed")
    index = tmp_path / "index.json"
    index.write_text(codec.to_json(cards_index(list(classes)), indent=0), encoding="utf-8")
    draw = random.Random(SEED)
    every = sorted({gpu.name for gpu in gpus.gpus() if gpu.official})
    cases = [_loosely(draw.choice(every), draw) for _ in range(400)]
    cases += [
        "1080ti",
        "k80",
        "3060",
        "sm_61",
        "6.1",
        "10de:1b06",
        "titan x",
        "rx 580",
        "6000",
        "V100,P100",
        "8x A100",
        "K80 x2",
        "Tegra X2",
        "2 * 1080ti",
    ]
    cases += ["RunPod 2x RTX 6000 Ada", "gpu_8x_h100_sxm5", "gpu_1x_a10", "Dell R720 with a K80", "RunPod RTX 4000 Ada"]
    cases += ["RTX 6000 Blackwell", "RTX 8000 Ada", "RTX 4090 Ada", "RTX2060S", "RTX 4070TiS"]
    cases += ["foo", "1660s", "A100-SXM4-40GB MIG 1g.5gb", "NVIDIA Corporation GP102 [GeForce GTX 1080 Ti] (rev a1)"]
    cases += [re.sub(r"\b(GeForce|Tesla|Quadro) | ", "", name) for name in every]
    (tmp_path / "cases.json").write_text(json.dumps(cases), encoding="utf-8")
    (tmp_path / "names.js").write_text(page.asset("names.js"), encoding="utf-8")
    done = subprocess.run([node, "-e", _RUN], cwd=tmp_path, capture_output=True, encoding="utf-8", check=True)
    kinds = {each.key: each.id for each in classes}
    different = []
    for case, seen in zip(cases, json.loads(done.stdout), strict=True):
        expected = _expected(case, kinds)
        if seen != expected:
            different.append((case, seen, expected))
    assert not different


def _loosely(name: str, draw: random.Random) -> str:
    short = re.sub(r"\b(GeForce|Tesla|Quadro) ", "", name)
    bare = re.sub(r"\b(GTX|RTX|GT) ", "", short)
    forms = [name, name.lower(), short, short.replace(" ", ""), short.lower().replace(" ", "-"), f"NVIDIA {name}"]
    forms += [bare, f"ASUS ROG Strix {short} OC", f"my {short} card", name.upper(), f"EVGA {short} SC+ ACX 2.0"]
    return draw.choice([*forms, f"{short} 12GB", f"{name} (rev a1)"])


def _expected(case: str, kinds: dict[str, str]) -> list[Any] | None:
    try:
        cards = spellings.situation(case).cards
    except RekindleError:
        return None
    if len(cards) > 1:
        return None
    noted = any(" is read as " in note for note in cards[0].notes)
    return [cards[0].name, kinds[answers.key(cards[0])], noted, cards[0].count]


_RUN = """
const fs = require("fs");
const known = JSON.parse(fs.readFileSync("index.json", "utf8"));
for (const name of ["shorts", "quiet", "pages"]) known[name] = new Set(known[name]);
const read = require("./names.js")(known);
const seen = JSON.parse(fs.readFileSync("cases.json", "utf8")).map((text) => {
  const found = read(text);
  if (!found || found.number === undefined) return null;
  return [known.names[found.number], known.classes[found.number], found.noted, found.count || 1];
});
console.log(JSON.stringify(seen));
"""


@pytest.mark.parametrize("name", ["data", "gpu"])
def test_nothing_is_written_through_a_link_in_the_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "site").mkdir()
    trees.link(tmp_path / "site" / name, tmp_path / "outside", to_folder=True)
    with pytest.raises(BadInput, match="is a link, and may lead out of"):
        site.write_site(tmp_path / "site", only=["Tesla K80"])
    assert list((tmp_path / "outside").iterdir()) == []


def test_a_file_in_the_place_of_the_folder_is_refused_before_any_work(tmp_path: Path) -> None:
    file = tmp_path / "site"
    file.write_text("", encoding="utf-8")
    with pytest.raises(RekindleError, match="is a file, and the site is a folder"):
        site.write_site(file, say=pytest.fail)


def test_the_first_word_comes_before_the_first_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def classes() -> tuple[()]:
        assert said == ["sorting the cards into kinds"]
        return ()

    monkeypatch.setattr(answers, "classes", classes)
    assert list(site.answered(say=said.append)) == []
    assert said[1:] == ["answering for 0 kinds of cards"]


@pytest.mark.skipif(sys.platform == "win32", reason="UNVERIFIED: there are no signals like these on Windows")
def test_a_stopped_site_leaves_nothing_behind(tmp_path: Path) -> None:
    """Ended from outside, Python warned of leaked semaphores; by Ctrl-C, a process that was beginning showed where."""
    words = [sys.executable, "-m", "rekindle", "site", "--gpu", "K80", "--gpu", "V100", "--jobs", "2", "-o", "s"]
    with subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as running:
        assert running.stderr is not None
        for line in running.stderr:
            if line.startswith("answering"):
                break
        children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
        deaf = 1 << (signal.SIGINT - 1)
        while children.exists() and len(beside := children.read_text(encoding="utf-8").split()) < 3:
            time.sleep(0.01)
        for child in beside if children.exists() else ():
            blocked, ignored = (_signals(child, which) for which in ("SigBlk", "SigIgn"))
            assert (blocked | ignored) & deaf
        running.terminate()
        said = running.stderr.read()
    assert (running.returncode, "resource_tracker" in said, "interrupted" in said) == (130, False, True)


def _signals(process: str, which: str) -> int:
    text = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    return int(re.findall(rf"^{which}:\s*([0-9a-f]+)", text, re.MULTILINE)[0], 16)
