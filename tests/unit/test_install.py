"""`rekindle install`: what it refuses, and how it keeps and puts back files. Real environments are in tests/real."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from packaging.utils import canonicalize_name

import rekindle
from rekindle.cli.main import run
from rekindle.core.errors import FetchFailed, MissingTool, NoRoute, NotFound, UsageError
from rekindle.core.findings import State
from rekindle.core.run import Result
from rekindle.core.version import Version
from rekindle.extension.candidates import IndexAnswer
from rekindle.extension.find import LookedInto
from rekindle.install import apply, command, record
from rekindle.install.beside import Beside, fitting
from rekindle.install.bundle import bundle
from rekindle.install.command import locate_environment
from rekindle.install.installer import Pip, Request
from rekindle.install.record import Distribution
from rekindle.model.card import Capability
from rekindle.model.environment import Environment
from rekindle.model.platform import LINUX
from rekindle.stack import offers
from rekindle.stack import plan as lock
from rekindle.stack.resolver import resolve
from rekindle.stack.route import Change, Route, RuntimeSetting
from rekindle.stack.rules import RouteKind
from rekindle.stack.situation import Prefer, TypedWish, Wish, situation_from_options
from support.artefacts import unverified
from support.command import rekindle_command
from support.fatbins import container


@pytest.fixture
def env(tmp_path: Path) -> Environment:
    """An environment as far as files go."""
    prefix = tmp_path / "my env"
    site = prefix / "lib" / "site-packages"
    site.mkdir(parents=True)
    return Environment(
        root=str(prefix),
        os="windows" if os.name == "nt" else "linux",
        kind="venv",
        python=Version("3.11.9"),
        site_packages=(str(site),),
        interpreter=str(prefix / "bin/python"),
        has_headers=True,
        pip="24.0",
    )


def put(env: Environment, name: str, version: str, files: dict[str, str]) -> Distribution:
    """Install a distribution by hand: its files and its RECORD."""
    site = env.site
    info = f"{name}-{version}.dist-info"
    for path, text in {**files, f"{info}/METADATA": f"Name: {name}\nVersion: {version}\n"}.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text, encoding="utf-8")
    rows = "".join(f"{path},,\n" for path in [*files, f"{info}/METADATA", f"{info}/RECORD"])
    (site / info / "RECORD").write_text(rows, encoding="utf-8")
    return record.installed(site)[canonicalize_name(name)]


def everything(env: Environment) -> dict[str, str]:
    prefix = Path(env.root)
    return {
        str(path.relative_to(prefix)): path.read_text(encoding="utf-8") for path in prefix.rglob("*") if path.is_file()
    }


def test_what_is_kept_comes_back_byte_for_byte(env: Environment) -> None:
    old = put(
        env, "torch", "2.8.0", {"torch/__init__.py": "old", "torch/only_old.py": "x", "../../bin/torchrun": "run"}
    )
    put(env, "numpy", "1.26.4", {"numpy/__init__.py": "np"})
    before = everything(env)
    folder = record.begin(env, "official-wheel", [old], [apply.pip_configuration(env)])
    record.remove(old, env.site, Path(env.root))
    put(env, "torch", "2.7.1+cu118", {"torch/__init__.py": "new", "torch/only_new.py": "y"})
    apply.pip_configuration(env).write_text("[install]\n", encoding="utf-8")
    undone = record.restore(env, folder)
    assert [(each.name, each.before, each.after) for each in undone] == [("torch", "2.7.1+cu118", "2.8.0")]
    assert everything(env) == before


def test_what_a_person_added_since_stays(env: Environment) -> None:
    folder = record.begin(env, "official-wheel", [], [])
    put(env, "torch", "2.7.1", {"torch/__init__.py": "new"})
    record.finish(env, folder, (record.Replaced(name="torch", before=None, after="2.7.1"),))
    put(env, "requests", "2.32", {"requests/__init__.py": "mine"})
    record.restore(env, folder)
    assert set(record.installed(env.site)) == {"requests"}


def test_a_record_that_points_outside_is_not_followed(env: Environment, tmp_path: Path) -> None:
    outside = tmp_path / "precious.txt"
    outside.write_text("keep me", encoding="utf-8")
    evil = put(env, "evil", "1.0", {"evil/__init__.py": ""})
    record_file = env.site / evil.info / "RECORD"
    record_file.write_text(f"{outside},,\n../../../precious.txt,,\n", encoding="utf-8")
    record.remove(evil, env.site, Path(env.root))
    assert outside.read_text(encoding="utf-8") == "keep me"
    assert "evil" not in record.installed(env.site)


def test_pips_own_configuration_keeps_what_it_had(env: Environment) -> None:
    path = apply.pip_configuration(env)
    path.write_text("[global]\ntimeout = 7\n[install]\nconstraint = mine.txt\n", encoding="utf-8")
    constraints = apply.write_constraints(env, {"torch": "2.3.1+cu118"}, ("numpy<2",))
    apply.name_in_pip(env, constraints)
    apply.name_in_pip(env, constraints)
    text = path.read_text(encoding="utf-8")
    assert "timeout = 7" in text
    assert text.count("rekindle-constraints.txt") == 1
    # pip splits the value at spaces: a folder with one in its name must not break it.
    assert f"constraint = mine.txt {constraints.as_uri()}" in text
    assert "my%20env" in text
    assert constraints.read_text(encoding="utf-8").splitlines()[1:] == ["torch==2.3.1+cu118", "numpy<2"]


def test_the_request_is_what_a_person_would_type() -> None:
    route = Route(
        route=RouteKind.OFFICIAL_WHEEL,
        torch="2.3.1",
        variant="cu118",
        torchvision="0.18.1",
        numpy="numpy<2",
        index_url="https://download.pytorch.org/whl/cu118",
    )
    assert apply.request_of(route).steps == (
        ("numpy<2",),
        (
            "torch==2.3.1+cu118",
            "torchvision==0.18.1+cu118",
            "--index-url",
            "https://download.pytorch.org/whl/cu118",
        ),
    )
    assert Request(requirements=("torch==2.10.0",)).steps == (("torch==2.10.0",),)


@pytest.mark.parametrize(
    ("card", "torch", "python", "system"),
    [
        ("RTX 3090", "1.8.1", "3.8", "linux"),
        ("GTX 1080 Ti", "1.5.1", "3.6", "linux"),
        ("GTX 1080 Ti", None, "3.11", "linux"),
        ("GT 710", None, "3.12", "windows"),
    ],
)
def test_install_asks_for_what_plan_prints(card: str, torch: str | None, python: str, system: str) -> None:
    """Index, order and what goes in by itself: one route, one set of lines."""
    found = rekindle.plan(gpus=card, torch=torch, python=python, os=system).recommended
    printed = [line.words[line.words.index("install") + 1 :] for line in found.commands if "install" in line.words]
    assert found.route.by_pip
    assert list(apply.request_of(found).steps) == printed


@pytest.mark.parametrize(
    ("route", "error", "says"),
    [
        (Route(route=RouteKind.OFFICIAL_WHEEL, torch="1.10.2", python="3.6"), MissingTool, "needs Python 3.6"),
        (Route(route=RouteKind.SOURCE_BUILD, torch="2.7.1", commands=("rekindle build p",)), MissingTool, "be built"),
        (Route(route=RouteKind.CONDA_FORGE, torch="2.13.0"), MissingTool, "conda environment"),
        (
            Route(route=RouteKind.NONE, summary="no", change=Change(what="card", text="other", route=RouteKind.NONE)),
            NoRoute,
            "no",
        ),
    ],
    ids=["python", "build", "conda", "none"],
)
def test_a_route_that_cannot_be_carried_out_here(
    env: Environment, route: Route, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        apply.check(route, env)


def test_another_release_is_installed_by_the_same_verb(env: Environment) -> None:
    """A bare `pip install` would leave nothing that keeps it in place."""
    nearest = Change(
        what="torch",
        text="a different PyTorch: 2.7.1",
        route=RouteKind.OFFICIAL_WHEEL,
        torch="2.7.1",
        commands=("pip x",),
    )
    with pytest.raises(NoRoute) as refused:
        apply.check(Route(route=RouteKind.NONE, summary="no", change=nearest), env)
    assert re.search(r"install .*my env.? --torch 2.7.1", str(refused.value.hint))


@pytest.mark.parametrize("kind", [each for each in RouteKind if each is not RouteKind.NONE])
def test_every_kind_of_route_is_taken_or_refused_in_words(env: Environment, kind: RouteKind) -> None:
    """NVIDIA's wheel for a Jetson, which `doctor` tells to install, was a KeyError."""
    by_pip = (RouteKind.OFFICIAL_WHEEL, RouteKind.CPU_WHEEL, RouteKind.NVIDIA_WHEEL, RouteKind.SHELF)
    taken = (RouteKind.INSTALLED, *by_pip)
    route = Route(route=kind, torch="2.5.0", python="3.11")
    if kind is RouteKind.INSTALLED:
        with pytest.raises(NotFound, match="is not in"):
            apply.check(route, env)
        (env.site / "torch").mkdir()
        (env.site / "torch" / "version.py").write_text("__version__ = '2.5.0'\ncuda = '12.4'\n")
    if kind in taken:
        assert apply.check(route, env) is None
    else:
        with pytest.raises(MissingTool):
            apply.check(route, env)


def test_a_torch_for_the_processor_is_not_held_against_the_card(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`plan` put it first for a GT 710, and `install` refused to carry it out."""
    route = Route(route=RouteKind.CPU_WHEEL, torch="2.15.0", variant="cpu", index_url="https://example.org/cpu")
    assert apply.request_of(route).requirements == ("torch==2.15.0",)
    seen: list[object] = []
    monkeypatch.setattr(apply, "_install", lambda *words: seen.append(words[-1]))
    apply.install(env, route, Pip(env), (Capability(3, 5),))
    assert seen == [()]


def test_where_there_is_no_environment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(NotFound, match="no Python environment"):
        locate_environment(tmp_path / "nothing")
    with pytest.raises(UsageError, match="system's Python"):
        locate_environment(Path(sys.base_prefix) / ("python.exe" if os.name == "nt" else "bin/python3"))
    assert run(["install", str(tmp_path / "nothing"), "--gpu", "Tesla K80"]) == NotFound.exit_code
    assert "hint:" in capsys.readouterr().err


def test_a_bundle_is_for_the_machine_it_goes_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def download(args: list[str], **_: object) -> Result:
        asked.append(args)
        Path(args[args.index("--dest") + 1], "ninja-1.13.2-py3-none-win_amd64.whl").write_bytes(b"wheel")
        return Result(args=tuple(args), code=0)

    monkeypatch.setattr("rekindle.core.run.call", download)
    verdict = resolve(situation_from_options(["Tesla K40c"], system="windows", python="3.11"), Wish())
    found = bundle(verdict, tmp_path / "b")
    assert [asked[0][asked[0].index(word) + 1] for word in ("--platform", "--python-version")] == [
        "win_amd64",
        "3.11.99",
    ]
    assert found.files[0].sha256 == hashlib.sha256(b"wheel").hexdigest()
    assert any("CUDA 11.8" in line for line in found.by_hand)
    assert any("R470" in line for line in found.by_hand)
    assert "setuptools<=75.8.2" in lock.read(tmp_path / "b" / "plan.toml").requires
    assert lock.read(tmp_path / "b" / "plan.toml").torch == "2.7.1"


def test_a_bundle_that_cannot_be_fetched_says_the_whole_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command was for the Python and system it is typed on, and an empty folder stayed behind."""
    monkeypatch.setattr("rekindle.core.run.call", lambda args, **_: Result(args=tuple(args), code=1))
    verdict = resolve(situation_from_options(["RTX A4000"], system="linux", driver="535", python="3.11"), Wish())
    with pytest.raises(FetchFailed) as failed:
        bundle(verdict, tmp_path / "b")
    (line,) = [each for each in (failed.value.hint or "").splitlines() if "rekindle plan" in each]
    assert len(line.partition("--bundle")[0]) < 120, "it was pip's, with forty platforms"
    assert '--gpu "RTX A4000" --os linux --driver 535' in line and "--torch 2.14.1+cu126 --python 3.11" in line
    words = shlex.split(line)
    seen = rekindle_command(*words[1 : words.index("--bundle")], "--json").json()["recommended"]
    assert (seen["torch"], seen["variant"], seen["python"]) == ("2.14.1", "cu126", "3.11")
    assert not (tmp_path / "b").exists()


def test_conda_forge_goes_through_conda_and_back(
    env: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in that does what conda does to the files; no conda can be had here, so the real one is UNVERIFIED."""
    if os.name == "nt":
        unverified("the stand-in for conda is a shell script")
    site = env.site
    conda = tmp_path / "conda"
    said = tmp_path / "said.txt"
    conda.write_text(
        f"""#!/bin/sh
printf '%s\\n' "$*" >> "{said}"
case "$*" in
  *--revisions*) echo '[{{"rev": 0}}, {{"rev": 4}}]' ;;
  *"--revision 4"*) rm -rf "{site}/torch" "{site}"/torch-*.dist-info ;;
  *) mkdir -p "{site}/torch/lib" "{site}/torch-2.13.0.dist-info"; cp "{tmp_path}/code" "{site}/torch/lib/x.fatbin" ;;
esac
""",
        encoding="utf-8",
    )
    conda.chmod(0o755)
    (tmp_path / "code").write_bytes(container("sm_60", "sm_70") * 2)
    monkeypatch.setenv("CONDA_EXE", str(conda))
    (Path(env.root) / "conda-meta").mkdir()
    env = msgspec.structs.replace(env, kind="conda")
    verdict = resolve(situation_from_options(["GTX 1080 Ti"], system="linux", python="3.11"), Wish())
    route = next(each for each in verdict.routes if each.route is RouteKind.CONDA_FORGE)
    (shown,) = apply.install(env, route, None, (Capability(6, 1),), dry_run=True).commands
    assert f"conda install -y -p {env.root} -c conda-forge" in shown.replace('"', ""), (
        "the one that is active is another"
    )
    report = apply.install(env, route, None, (Capability(6, 1),))
    assert report.coverage == {"6.1": "SERVES"}
    assert f"pytorch =={route.torch}=cuda*" in (Path(env.root) / "conda-meta" / "pinned").read_text("utf-8")
    asked = said.read_text(encoding="utf-8")
    assert f"install -y -p {env.root} -c conda-forge python=3.11 pytorch={route.torch}=cuda*" in asked
    apply.undo(env)
    assert "--revision 4" in said.read_text(encoding="utf-8")
    assert not (Path(env.root) / "conda-meta" / "pinned").exists()
    assert record.installed(site) == {}


def test_a_setting_is_in_force_right_after_torch_is_imported(tmp_path: Path) -> None:
    """Nobody can edit ComfyUI's program: the environment itself switches off a cuDNN without the card's code."""
    site = tmp_path / "site-packages"
    (site / "torch" / "backends").mkdir(parents=True)
    (site / "torch" / "__init__.py").write_text("import torch.backends\n", encoding="utf-8")
    (site / "torch" / "backends" / "__init__.py").write_text("class cudnn:\n    enabled = True\n", encoding="utf-8")
    place = Environment(
        root=str(tmp_path),
        os="linux",
        kind="venv",
        python=Version("3.11"),
        site_packages=(str(site),),
        interpreter=sys.executable,
        has_headers=True,
    )
    pth = apply.write_hook(
        place, [RuntimeSetting(code="torch.backends.cudnn.enabled = False", why="no Kepler code in it")]
    )
    assert pth.read_text(encoding="utf-8") == "import rekindle_settings\n"
    program = f"import site; site.addsitedir({str(site)!r}); import sys; assert 'torch' not in sys.modules; "
    program += "import torch; print(torch.backends.cudnn.enabled)"
    done = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "False", done.stderr


def test_the_settings_of_a_route_are_those_that_its_loss_asks_for() -> None:
    lossy = resolve(
        situation_from_options(["Tesla K80"], system="linux"), Wish(torch="2.7.1", prefer=Prefer.QUICKEST)
    ).recommended
    assert [setting.code for setting in lossy.settings] == ["torch.backends.cudnn.enabled = False"]
    assert resolve(situation_from_options(["RTX 4090"], system="linux"), Wish()).recommended.settings == ()


def test_a_uv_project_is_told_that_uv_sync_would_undo_it(env: Environment) -> None:
    assert not any("uv sync" in note for note in command.environment_notes(env, ()))
    (Path(env.root).parent / "uv.lock").write_text("version = 1\n", encoding="utf-8")
    assert any("uv sync" in note and "--as uv" in note for note in command.environment_notes(env, ()))


def test_a_portable_folder_says_which_python_is_changed(tmp_path: Path) -> None:
    inside = tmp_path / "python_embeded"
    (tmp_path / "ComfyUI").mkdir()
    place = Environment(
        root=str(inside),
        os="windows" if os.name == "nt" else "linux",
        kind="embedded",
        python=Version("3.12"),
        site_packages=(str(inside / "Lib" / "site-packages"),),
        interpreter=str(inside / "python.exe"),
        has_headers=False,
    )
    said = command.environment_notes(place, (Capability(6, 1),))
    assert "python.exe" in said[0]
    assert any("nvidia_cu126" in note for note in said)
    for other in (Capability(8, 6), Capability(3, 7)):
        assert not any("nvidia_cu126" in note for note in command.environment_notes(place, (other,)))


def test_an_installer_is_no_extension(env: Environment) -> None:
    with pytest.raises(UsageError, match="uv is an installer") as error:
        fitting(
            ("uv",), Route(route=RouteKind.OFFICIAL_WHEEL), env, situation_from_options(["RTX 4090"], system="linux")
        )
    assert error.value.hint == "`--installer uv`"


def _asked(env: Environment, card: str, torch: str | None = None, **more: str) -> tuple[Beside, ...]:
    place = situation_from_options([card], system="linux", driver="580", python="3.11", **more)
    return fitting(("flash-attn",), resolve(place, TypedWish(torch=torch).wish).recommended, env, place)


@pytest.fixture
def unreached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rekindle.extension.find._ask", lambda *words: IndexAnswer(place=None, reached=False))
    unread = LookedInto(State.UNVERIFIED, "the file could not be read from here")
    monkeypatch.setattr("rekindle.extension.find.look_into", lambda *words: unread)


@pytest.mark.skipif(sys.platform == "win32", reason="UNVERIFIED: the files that it names are for Linux")
@pytest.mark.usefixtures("unreached")
def test_an_extension_is_found_for_the_torch_that_is_coming(env: Environment) -> None:
    (found,) = _asked(env, "RTX 4090", "2.8")
    assert "torch2.8cxx11abiTRUE-cp311-cp311-linux_x86_64.whl" in found.wheel.words[0]
    request = Request(requirements=("torch==2.8.0",), index=("--index-url", "X"), beside=(found.wheel.words,))
    assert request.steps == (("torch==2.8.0", "--index-url", "X"), found.wheel.words)


@pytest.mark.skipif(sys.platform == "win32", reason="UNVERIFIED: the files that it names are for Linux")
@pytest.mark.usefixtures("unreached")
def test_where_none_fits_the_torch_that_has_one_is_taken(env: Environment) -> None:
    """A torch that was told, without a wheel for it, is not installed; one that nobody told is chosen for the wheel."""
    with pytest.raises(NoRoute, match="nothing was installed") as error:
        _asked(env, "RTX 4090", "2.15")
    hint = str(error.value.hint)
    assert "rekindle extension build flash-attn" in hint and "hours for the attention kernels" in hint
    place = situation_from_options(["RTX 4090"], system="linux", driver="580", python="3.11")
    told = resolve(place, TypedWish(torch="2.15", extensions=["flash-attn"]).wish).recommended
    assert told.route is RouteKind.NONE and told.change and told.change.what == "torch"
    best = resolve(place, TypedWish(extensions=["flash-attn"]).wish).recommended
    # The makers' own wheels come first; the nearest to 2.15 that there is was built by others.
    assert (best.torch, told.change.torch) == ("2.8.0", "2.13.0")
    assert _asked(env, "RTX 4090", best.version)


@pytest.mark.usefixtures("unreached")
@pytest.mark.parametrize(("card", "said"), [("GTX 1080 Ti", "it begins with 8.0"), ("GT 610", "cannot go in")])
def test_a_card_that_no_build_serves_gets_no_extension(env: Environment, card: str, said: str) -> None:
    with pytest.raises(NoRoute, match=said):
        _asked(env, card)


def test_a_wheel_that_the_machine_rules_out_is_told_the_machines_reason() -> None:
    """It was "not what `--torch` asks for" where no driver runs at all."""
    place = msgspec.structs.replace(situation_from_options(["GTX 1080 Ti"], system="linux"), no_driver=True)
    official = offers.official_of("2.6.0", LINUX)[0]
    own = msgspec.structs.replace(official, route=RouteKind.SHELF, location="/x.whl")
    with pytest.raises(NoRoute, match="no NVIDIA driver is running"):
        command._route_of(Path("x.whl"), own, resolve(place, Wish(), (own,)))


def test_the_line_that_is_proposed_is_for_the_same_card(env: Environment) -> None:
    """`install --gpu "RTX 5070" --torch 2.1.2` proposed a line without the card, which installs a torch for the CPU."""
    route = resolve(situation_from_options(["RTX 5070"], system="linux"), Wish(torch="2.1.2")).recommended
    with pytest.raises(NoRoute) as error:
        apply.check(route, env, ("--gpu", "GeForce RTX 5070"))
    assert '--gpu "GeForce RTX 5070" --torch' in str(error.value.hint)


def test_the_line_for_another_python_asks_for_the_same(env: Environment) -> None:
    """It dropped the plan, or the card and the release, and installed something else."""
    route = Route(route=RouteKind.OFFICIAL_WHEEL, torch="2.3.1", python="3.8")
    for words, plan, said in (
        ((), Path("plans"), "install ENV --plan plans"),
        (("--gpu", "Tesla K80"), None, 'install ENV --gpu "Tesla K80" --torch 2.3.1'),
    ):
        with pytest.raises(MissingTool) as error:
            apply.check(route, env, words, plan)
        assert said in str(error.value.hint)
