"""What a sixth set of attackers got through: fields in any case, code that starts with Python, secrets."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from rekindle.core.redact import redact, secrets
from rekindle.formats import package
from rekindle.review.review import review
from rekindle.wheels.inspect.integrity import startup_findings
from support.command import rekindle_command

KEY = "abcD3fgh1jkLmN0pQ"


def wheel(place: Path, files: dict[str, str], meta: str = "Name: foo\nVersion: 1.0\n") -> Path:
    path = place / "foo-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("foo-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\n{meta}")
        made.writestr("foo-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        for name, text in {**files, "foo-1.0.dist-info/RECORD": ""}.items():
            made.writestr(name, text)
    return path


def test_fields_are_read_in_any_case_as_pip_reads_them(tmp_path: Path) -> None:
    meta = "name: torch\nversion: 9\nName: foo\nVersion: 1.0\nREQUIRES-DIST: evil\nrequires-python: >=3.99\n"
    with package.open_package(wheel(tmp_path, {}, meta)) as found:
        fields = package.headers(found, "METADATA")
    assert (fields["Name"][0], fields["Version"][0]) == ("torch", "9")
    assert fields["Requires-Dist"] == ["evil"] and fields["Requires-Python"] == [">=3.99"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.pth", "# old\rimport evil\r"),
        ("sitecustomize.pyc", ""),
        ("sitecustomize.cpython-311-x86_64-linux-gnu.so", ""),
        ("foo-1.0.data/data/lib/python3.11/site-packages/a.pth", "import evil\n"),
    ],
)
def test_what_starts_with_python_is_named(tmp_path: Path, name: str, text: str) -> None:
    with package.open_package(wheel(tmp_path, {name: text})) as found:
        (said,) = startup_findings(found)
    assert name in said.found


def test_libraries_in_a_wheel_for_any_system_are_no_match(tmp_path: Path) -> None:
    path = wheel(tmp_path, {})
    with zipfile.ZipFile(path, "a") as made:
        made.write("/bin/true" if Path("/bin/true").exists() else __file__, "foo/libx.so")
    seen = rekindle_command("verify", "--no-run", str(path))
    assert "promise any system" in seen.out or not Path("/bin/true").exists()


@pytest.mark.parametrize(
    "text",
    [
        f'HF_TOKEN = b"{KEY}"', f"HF_TOKEN = rb'{KEY}'", f"HF_TOKEN ?= {KEY}", f"HF_TOKEN += {KEY}",
        f"HF_TOKEN ::= {KEY}", f'HF_TOKEN: str = "{KEY}"', f'{{"name": "HF_TOKEN", "value": "{KEY}"}}',
        f"- name: HF_TOKEN\n  value: {KEY}", f'set(ENV{{HF_TOKEN}} "{KEY}")', f"--api_key {KEY}",
        f"http://joe.doe@corp.com:{KEY}@127.0.0.1:9/foo.whl",
    ],
)  # fmt: skip
def test_secrets_as_languages_write_them(text: str) -> None:
    assert KEY not in secrets(text) and "<secret>" in secrets(text)
    assert secrets("max_tokens: int = 2048") == "max_tokens: int = 2048"


@pytest.mark.parametrize("words", [("inspect", "http://[::1"), ("fleet", "status", "."), ("fleet", "status", "/")])
def test_what_is_no_address_and_no_matrix_is_said(words: tuple[str, ...]) -> None:
    seen = rekindle_command(*words)
    assert seen.code not in (0, 1) and "internal error" not in seen.err


def test_a_step_whose_shell_is_blank(tmp_path: Path) -> None:
    flow = tmp_path / "w.yml"
    flow.write_text(
        'on: push\njobs:\n  a:\n    runs-on: ubuntu-latest\n    steps:\n      - shell: "  "\n        run: make\n'
    )
    assert review([flow]) is not None


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("1A2B3C4D-1111-2222-3333-444455556666", "<uuid>"),
        ("default via 10.1.2.3 dev eth0 src 10.1.2.4", "default via <address> dev eth0 src <address>"),
        ("nameserver 10.0.0.53", "nameserver <address>"),
        ("inet 10.1.2.3/24", "inet <address>/24"),
        ("fc00::1", "<address>"),
        ("-v /home/joedoe:/x", "-v /home/<user>:/x"),
        ("/run/media/joedoe/x", "/run/media/<user>/x"),
        ("TensorRT 10.0.1.6", "TensorRT 10.0.1.6"),
    ],
)
def test_who_and_where_leave_a_paste_block(text: str, left: str) -> None:
    assert redact(text, names=()) == left
