"""The table of the most wanted extensions: in build order, and never a result that was not measured."""

from __future__ import annotations

from tools import extension_table
from tools.extension_table import LIST, Built, page


def _built(name: str, **more: object) -> Built:
    given = {
        "name": name, "command": f"rekindle extension build {name}", "gpu": "GTX 1080 Ti", "torch": "2.6.0",
        "cuda": "12.4", "python": "3.13.5", "processor": "aarch64", "seconds": 61.0, "code": 0, "wheel": "a.whl",
        "targets": {"sm_61": 3}, "inspected": "SERVES", "imported": "PASS", "why": "",
    }  # fmt: skip
    return Built(**{**given, **more})  # type: ignore[arg-type]


def test_each_stands_below_what_it_needs() -> None:
    names = [each.name for each in LIST]
    assert len(names) == len(set(names)) >= 10
    for each in LIST:
        assert all(names.index(first) < names.index(each.name) for first in each.after)


def test_what_was_not_built_is_unverified() -> None:
    rows = [line for line in page([]).splitlines() if line.startswith("| ") and "not built here" in line]
    assert len(rows) == len(LIST)
    assert "every row is UNVERIFIED" in page([])


def test_a_wheel_and_a_failure_are_told_apart() -> None:
    text = page([_built("torch-scatter"), _built("nvdiffrast", wheel=None, why="no\ncompiler | here", targets={})])
    assert "built; inspect: SERVES, 3 × sm_61; import: PASS" in text
    assert "failed: no compiler / here" in text
    assert f"1 of {len(LIST)} were built" in text


def test_the_reason_is_the_first_failed_finding() -> None:
    answer = {"findings": [{"state": "PASS", "found": "a"}, {"state": "FAIL", "found": "b"}]}
    assert extension_table._reason(answer, "noise") == "b"
    assert extension_table._reason({"message": "c"}, "noise") == "c"


def test_a_wheel_without_code_for_the_card_is_not_built() -> None:
    """sam2 gives a wheel without its CUDA module when that does not compile."""
    text = page([_built("sam2", targets={}, inspected="NO", code=8, why="the import fails")])
    assert "a wheel that does not pass: the import fails" in text
    assert f"0 of {len(LIST)} were built" in text


def test_a_refusal_is_no_failure() -> None:
    assert "refused: no code for it" in page([_built("flash-attn", wheel=None, refused=True, why="no code for it")])


def test_the_variables_of_the_shell_are_said() -> None:
    assert "In the shell: `MAX_JOBS=1`" in page([_built("torchsort", variables={"MAX_JOBS": "1"})])
    assert "In the shell" not in page([_built("torchsort")])
