"""`review --with-linters`: the findings of others, marked as theirs, which neither refuse nor accept a script."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from rekindle.cli.main import run
from support.artefacts import unverified

SCRIPT = "#!/bin/sh\ncd $BUILD\npip install torch==2.7.1 --index-url https://download.pytorch.org/whl/cu126\n"


def asked(capsys: pytest.CaptureFixture[str], path: Path) -> tuple[int, list[dict[str, object]], str]:
    code = run(["review", str(path), "--gpu", "GTX 1080 Ti", "--with-linters", "--json"])
    said = capsys.readouterr()
    return code, json.loads(said.out)["scripts"][0]["remarks"], said.err


def planted(folder: Path, monkeypatch: pytest.MonkeyPatch, program: str, answer: str) -> None:
    """The program prints `answer`, as it does for a file with findings: its exit code is 1."""
    if os.name == "nt":
        unverified("the programs here are shell scripts")
    path = folder / "bin" / program
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{answer}\nEND\nexit 1\n", encoding="utf-8")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}:/usr/bin:/bin")


def test_shellcheck_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which("shellcheck") is None:
        unverified("shellcheck is not installed (Debian: apt-get install shellcheck)")
    script = tmp_path / "build.sh"
    script.write_text(SCRIPT, encoding="utf-8")
    code, remarks, _ = asked(capsys, script)
    theirs = [each for each in remarks if str(each["id"]).startswith("shellcheck:")]
    assert [(each["id"], each["line"], each["state"]) for each in theirs] == [("shellcheck:SC2164", 2, "WARN")]
    assert code == 0, "what others find does not refuse a script that serves the card"


@pytest.mark.parametrize(
    ("program", "name", "text", "answer", "expected"),
    [
        (
            "actionlint",
            ".github/workflows/build.yml",
            "on: push\njobs:\n  a:\n    runs-on: ubuntu-latest\n    steps:\n      - run: pip install torch\n",
            '[{"message":"label is unknown","filepath":"x","line":4,"column":14,"kind":"runner-label"}]',
            [("actionlint:runner-label", 4)],
        ),
        (
            "hadolint",
            "Dockerfile",
            "FROM ubuntu:22.04\nRUN cd /x && pip install torch\n",
            (
                '[{"code":"DL3003","column":1,"file":"x","level":"warning","line":2,"message":"Use WORKDIR"},'
                '{"code":"DL3059","column":1,"file":"x","level":"info","line":2,"message":"many RUN"}]'
            ),
            [("hadolint:DL3003", 2)],
        ),
        ("hadolint", "Dockerfile", "FROM ubuntu:22.04\nRUN pip install torch\n", "no JSON at all", []),
    ],
)
def test_the_others_by_their_own_form(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    program: str,
    name: str,
    text: str,
    answer: str,
    expected: list[tuple[str, int]],
) -> None:
    planted(tmp_path, monkeypatch, program, answer)
    script = tmp_path / name
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(text, encoding="utf-8")
    _, remarks, said = asked(capsys, script)
    assert [(each["id"], each["line"]) for each in remarks if program in str(each["id"])] == expected
    assert ("gave no answer" in said) is not bool(expected)


def test_one_that_is_not_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    script = tmp_path / "build.sh"
    script.write_text(SCRIPT, encoding="utf-8")
    assert "shellcheck is not installed, so it was not asked" in asked(capsys, script)[2]
    batch = tmp_path / "build.bat"
    batch.write_text("pip install torch\n", encoding="utf-8")
    assert "none of shellcheck, hadolint, actionlint reads this kind of file" in asked(capsys, batch)[2]
