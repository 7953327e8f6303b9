"""The modules everything stands on: files, programs, redaction, versions, findings, the console."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle.core import codec, console, errors, files
from rekindle.core import redact as redaction
from rekindle.core.findings import Finding, Fix, State, exit_code, worst
from rekindle.core.redact import redact, secrets
from rekindle.core.run import call, checked, decode
from rekindle.core.version import Version
from support.command import rekindle_command


def test_every_kind_of_error_has_its_own_exit_code() -> None:
    codes = [kind.exit_code for kind in errors.kinds()]
    assert len(codes) == len(set(codes))
    assert 0 not in codes
    assert all(kind.__doc__ for kind in errors.kinds())


_WRITES = """
import sys
from pathlib import Path
from rekindle.core import files
with files.replacing(Path(sys.argv[1]) / sys.argv[2]) as stream:
    stream.write(b"half")
    print("writing", flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_run_left_is_swept_and_what_others_write_is_not(tmp_path: Path) -> None:
    """A process that is killed in the middle of a file leaves its half under a hidden name."""
    (tmp_path / ".mine.part").write_text("not Rekindle's\n", encoding="utf-8")
    writing = [
        subprocess.Popen(
            [sys.executable, "-c", _WRITES, str(tmp_path), name], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for name in ("dies.whl", "lives.whl")
    ]
    with writing[0] as dies, writing[1] as lives:
        for each in writing:
            assert each.stdout and each.stdout.readline().strip() == b"writing"
        dies.kill()
        dies.wait()
        names = sorted(path.name for path in tmp_path.iterdir())
        assert [name.partition(".whl")[0] for name in names] == [".dies", ".lives", ".mine.part"]
        assert [path.name for path in files.left_behind(tmp_path)] == names[:1]
        with files.replacing(tmp_path / "own.whl"):
            assert files.left_behind(tmp_path) == []
            assert len(list(tmp_path.iterdir())) == 3
        assert sorted(path.name for path in tmp_path.iterdir()) == [*names[1:], "own.whl"]
        lives.communicate(b"")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".mine.part", "lives.whl", "own.whl"]


def test_the_folder_of_a_killed_run_goes_with_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    dies = "import os, tempfile\nfrom rekindle.core import files\n"
    dies += f"tempfile.tempdir = {str(tmp_path)!r}\nwith files.scratch('test') as made:\n"
    dies += "    (made / 'half').write_bytes(b'x')\n    os._exit(77)\n"
    assert subprocess.run([sys.executable, "-c", dies], check=False, timeout=60).returncode == 77
    (left,) = tmp_path.iterdir()
    (tmp_path / "rekindle-of-somebody").mkdir()
    with files.scratch("test") as one, files.scratch("test") as other:
        assert sorted(tmp_path.iterdir()) == sorted((one, other, tmp_path / "rekindle-of-somebody"))
    assert not left.exists() and [path.name for path in tmp_path.iterdir()] == ["rekindle-of-somebody"]


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "plan.toml"
    files.write_text(target, "old\n")
    with pytest.raises(RuntimeError), files.replacing(target) as stream:
        stream.write(b"half")
        raise RuntimeError
    assert target.read_bytes() == b"old\n"
    assert [path.name for path in tmp_path.iterdir()] == ["plan.toml"]


def test_line_ends_are_the_same_on_every_system(tmp_path: Path) -> None:
    files.write_text(tmp_path / "a.sh", "one\r\ntwo\n")
    files.write_text(tmp_path / "a.cmd", "one\ntwo\n", newline="\r\n")
    assert (tmp_path / "a.sh").read_bytes() == b"one\ntwo\n"
    assert (tmp_path / "a.cmd").read_bytes() == b"one\r\ntwo\r\n"


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(errors.NotWritable, match="cannot write") as caught:
        files.write_text(tmp_path / "file" / "below", "x")
    assert caught.value.hint


def test_reading_what_is_not_there_or_a_folder(tmp_path: Path) -> None:
    with pytest.raises(errors.NotFound, match="no such file"):
        files.read_bytes(tmp_path / "absent")
    with pytest.raises(errors.NotFound, match="folder"):
        files.read_bytes(tmp_path)
    (tmp_path / "big").write_bytes(b"x" * 11)
    with pytest.raises(errors.NotFound, match="larger"):
        files.read_bytes(tmp_path / "big", limit=10)


def test_a_program_answers_with_code_and_text() -> None:
    result = call([sys.executable, "-c", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"])
    assert (result.code, result.out, result.err) == (3, "out\n", "err\n")
    with pytest.raises(errors.StepFailed, match="code 3"):
        checked(result, doing="try it")


def test_a_missing_program_is_an_answer_and_then_an_error() -> None:
    result = call(["rekindle-has-no-such-program"])
    assert not result.started
    with pytest.raises(errors.MissingTool, match="rekindle-has-no-such-program"):
        checked(result, doing="try it")


def test_a_program_that_hangs_costs_its_own_time_only() -> None:
    result = call([sys.executable, "-c", "import time; time.sleep(30)"], timeout=0.5)
    assert result.timed_out
    assert result.seconds < 29


def test_the_environment_is_what_was_given() -> None:
    keep = {name: os.environ[name] for name in ("SYSTEMROOT", "PATH") if name in os.environ}
    result = call([sys.executable, "-c", "import os; print(os.environ.get('REKINDLE_X'), 'HOME' in os.environ)"],
                  env={**keep, "REKINDLE_X": "1"})  # fmt: skip
    assert result.out == "1 False\n"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("Größe ü\r\n".encode(), "Größe ü\n"),
        ("\ufeffBOM".encode(), "BOM"),
        ("PATH=C:\\Müller\r\n".encode("utf-16-le"), "PATH=C:\\Müller\n"),
        ("\ufeffPATH".encode("utf-16-le"), "PATH"),
        (b"", ""),
    ],
)
def test_program_output_is_decoded(data: bytes, text: str) -> None:
    assert decode(data) == text


def test_bytes_that_are_no_utf8_do_not_raise() -> None:
    assert "version" in decode(b"Version\xe9 version 19.29")


@pytest.mark.parametrize(
    ("secret", "clean"),
    [
        (r"C:\Users\Jane Doe\source\pytorch", r"C:\Users\<the user>\source\pytorch"),
        (r"C:\Users\Jürgen\source", r"C:\Users\<üser>\source"),
        (r"C:\Users\<the üser>\source", r"C:\Users\<the üser>\source"),
        ("/home/jane/.cache/pip", "/home/<user>/.cache/pip"),
        ("https://jane:pa55word@mirror.example/simple", "https://<secret>@mirror.example/simple"),
        ("HF_TOKEN=hf_abcdefghijklmnopqrstuvwx", "HF_TOKEN=<secret>"),
        ("GPU-6f1b2c3d-1234-5678-9abc-def012345678", "<uuid>"),
        ("Serial Number : 0321518041234", "Serial Number : <serial>"),
        ("write to jane.doe@example.com", "write to <secret>"),
        ("ptxas sm_35 C:\\Program Files (x86)\\X", "ptxas sm_35 C:\\Program Files (x86)\\X"),
    ],
)
def test_names_and_secrets_are_taken_out(secret: str, clean: str) -> None:
    assert redact(secret, names=()) == clean


def test_host_and_user_names_are_taken_out_wherever_they_stand() -> None:
    assert redact("built on DESIREE by jane", names={"DESIREE", "jane"}) == "built on <name> by <name>"
    assert redact("janet stays", names={"jane"}) == "janet stays"


def test_versions_keep_their_spelling_and_compare_by_number() -> None:
    assert str(Version("580.65.06")) == "580.65.06"
    assert Version("12.9") < Version("12.10")
    assert Version("12.0") == Version("12")
    assert Version("9.10.2") > Version("9.9.0")
    assert Version("12.9.86").starts_with(Version("12.9"))
    assert not Version("12.10").starts_with(Version("12.1"))
    assert str(Version.find("release 11.8, V11.8.89")) == "11.8"
    for bad in ("", "a", "1.", "1..2", "1.2a", "9" * 40, "1.2.3.4.5.6.7.8.9.10"):
        with pytest.raises(ValueError, match="not a version"):
            Version(bad)


class _Value(msgspec.Struct, frozen=True, kw_only=True):
    version: Version
    path: Path
    state: State


def test_values_travel_as_json_and_back() -> None:
    value = _Value(version=Version("580.65.06"), path=Path("a"), state=State.WARN)
    assert codec.from_json(codec.to_json(value), _Value) == value
    with pytest.raises(errors.BadInput, match="plan"):
        codec.from_json(b'{"version": 3}', _Value, name="the plan")
    with pytest.raises(errors.BadInput):
        codec.from_json(b"[" * 100_000, _Value)


def test_unverified_is_never_a_pass() -> None:
    checks = [Finding(id="a", state=State.PASS, found="x"), Finding(id="b", state=State.UNVERIFIED, found="y")]
    assert worst(checks) is State.UNVERIFIED
    assert exit_code(worst(checks)) == errors.Unverified.exit_code
    assert exit_code(worst([*checks, Finding(id="c", state=State.FAIL, found="z")])) == errors.ChecksFailed.exit_code
    assert exit_code(worst([])) == 0


def test_a_finding_shows_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = console.finding(
        Finding(
            id="x",
            state=State.FAIL,
            found="ptxas is another's",
            why="it cannot",
            fix=Fix(text="do", commands=("run me",)),
        )
    )
    assert "FAIL" in text
    assert "fix: do" in text
    assert "run me" in text


@pytest.mark.parametrize("encoding", ["ascii", "cp437", "cp1252", "utf-8"])
def test_no_console_makes_it_crash(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
    console.out("4 × 3 → 12 … ≥ “ok” 日本 ✓")
    assert raw.getvalue().startswith(b"4 ")


def test_foreign_text_cannot_drive_the_terminal() -> None:
    assert console.clean("a\x1b]0;title\x07\x9b31mb\rc") == "a]0;title31mbc"


def test_colour_is_off_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert not console.colourful(Terminal(), {"NO_COLOR": "1", "TERM": "xterm"})
    assert not console.colourful(Terminal(), {"TERM": "dumb"})
    assert console.colourful(Terminal(), {"TERM": "xterm"})
    assert not console.colourful(io.StringIO(), {"TERM": "xterm"})


def test_a_wrong_verb_option_or_value_is_a_usage_error() -> None:
    for words in (["gppu"], ["gpu", "--nope", "x"], ["--knowledge"]):
        seen = rekindle_command(*words)
        assert seen.code == errors.UsageError.exit_code
        assert "hint:" in seen.err
    assert "did you mean `gpu`?" in rekindle_command("gppu").err


def test_version_and_help() -> None:
    assert rekindle_command("--version").out.startswith("rekindle ")
    assert "gpu" in rekindle_command("--help").out


_SECRET_WORDS = (
    "token", "secret", "password", "passwd", "passphrase", "credential", "credentials", "authorization",
    "auth", "api_key", "access-key", "privatekey", "secret_key", "signing-key", "accountkey", "signature",
    "bearer", "basic", "ghp_", "github_pat_", "glpat-", "hf_", "xoxb-", "sk-", "AKIA", "nvapi-", "eyJ",
    "https://", "ssh://", "--token", "--api-key", "DB_PASS", "PGPASSWORD", "curl -u ", " -u", " --user", "me:pa55word!",
    "cookie:", "pypi-", "SG.",
)  # fmt: skip
_FILLER = st.sampled_from(["=", ":", " ", ": ", "@host", "user", "a1B2c3D4e5F6g7H8i9J0k1", ".", "_x", "\n"])


@given(words=st.lists(st.sampled_from(_SECRET_WORDS) | _FILLER, max_size=8), odd=st.booleans())
def test_a_line_without_a_sign_of_a_secret_has_none(words: list[str], odd: bool) -> None:
    """The quick look must never pass over what the expression would take out, in letters that only look alike too."""
    text = "".join(words)
    if odd:
        text = text.translate(str.maketrans({"s": "ſ", "k": "\u212a", "i": "ı", "I": "İ", "t": "T", "e": "E"}))
    assert secrets(text) == redaction._masked(text)


def test_a_small_file_is_read_without_reserving_the_largest(tmp_path: Path) -> None:
    path = tmp_path / "small.json"
    path.write_bytes(b"{}")
    tracemalloc.start()
    try:
        assert files.read_bytes(path) == b"{}"
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
