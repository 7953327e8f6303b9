from __future__ import annotations

from pathlib import Path

from tools.structure import circles, measure


def test_a_circle_through_a_late_import_is_a_circle(tmp_path: Path) -> None:
    package = tmp_path / "p"
    package.mkdir()
    (package / "a.py").write_text("from p import b\n", encoding="utf-8")
    (package / "b.py").write_text("def f():\n    from p.a import x\n    return x\n", encoding="utf-8")
    (package / "c.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p import d\n", encoding="utf-8"
    )
    (package / "d.py").write_text("from p import c\n", encoding="utf-8")
    assert circles(measure(package).imports) == [["p.a", "p.b"]]


def test_a_crowded_function_and_a_name_used_twice_are_counted(tmp_path: Path) -> None:
    package = tmp_path / "p"
    package.mkdir()
    wide = "def f(self, a, b, c, d, e, f, g, *, h): ...\n"
    (package / "a.py").write_text(f"class X: ...\n{wide}", encoding="utf-8")
    (package / "b.py").write_text("class X: ...\ndef f(a, b, c, d, e, f, g): ...\n", encoding="utf-8")
    behind = measure(package).behind()
    assert behind["functions over 7 parameters"] == ["p.a.f (8)"]
    assert behind["classes defined twice"] == ["X: p.a, p.b"]
