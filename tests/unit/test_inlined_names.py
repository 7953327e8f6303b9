"""A name that one comprehension of a function binds, and another one reads from the module.

CPython 3.12 (3.12.1 and 3.12.3 were seen) inlines both into the function and takes the second for the first's variable:
`UnboundLocalError`, on that Python alone. `rekindle plan` fell there.
"""

from __future__ import annotations

import symtable
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.version_info >= (3, 12), reason="its symbol tables are inlined already")
SOURCES = Path(__file__).parents[2] / "src" / "rekindle"
_INLINED = ("listcomp", "setcomp", "dictcomp")


def _taken_for_another(table: symtable.SymbolTable) -> Iterator[str]:
    inlined = [each for each in table.get_children() if each.get_name() in _INLINED]
    if table.get_type() == "function":
        symbols = [symbol for each in inlined for symbol in each.get_symbols()]
        bound = {symbol.get_name() for symbol in symbols if symbol.is_assigned() and not symbol.is_parameter()}
        for symbol in symbols:
            if symbol.is_global() and symbol.get_name() in bound:
                yield f"{table.get_name()}, line {table.get_lineno()}: {symbol.get_name()}"
    for each in table.get_children():
        yield from _taken_for_another(each)


def _in(text: str, name: str = "a.py") -> list[str]:
    return list(_taken_for_another(symtable.symtable(text, name, "exec")))


def test_the_sign_is_seen() -> None:
    told = "def f(a):\n    b = [line for line in a]\n    return [line(each) for each in b]\n"
    assert _in(told) == ["f, line 1: line"]
    assert _in(told.replace("line(each)", "each")) == []


def test_no_function_reads_a_name_of_the_module_that_it_also_binds_in_a_comprehension() -> None:
    found = {path.name: _in(path.read_text(encoding="utf-8"), str(path)) for path in SOURCES.rglob("*.py")}
    assert {name: each for name, each in found.items() if each} == {}
