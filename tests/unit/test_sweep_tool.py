"""tools/sweep.py: what it reads out of PTX."""

from __future__ import annotations

import json

from tools import sweep
from tools.sweep import _made, counted, emptied

WORKS = """
.visible .entry works(
	.param .u64 works_param_0
)
{
	.reg .b64 	%rd<3>;
	ld.param.u64 	%rd1, [works_param_0];
	cvta.to.global.u64 	%rd2, %rd1;
	st.global.u32 	[%rd2], 7;
	ret;
}
"""
EMPTY = """
.visible .entry _Z7droppedv(
	.param .u64 p
)
.maxntid 128, 1, 1
{
	.reg .b64 	%rd<3>;
	ld.param.u64 	%rd1, [p];
	ret;
}
"""


def test_a_kernel_that_the_source_dropped_for_an_architecture_is_counted() -> None:
    assert counted(WORKS) == (1, [])
    assert counted(WORKS + EMPTY) == (2, ["_Z7droppedv"])
    for purpose in ("_ZN3cub11EmptyKernelIvEEvv", "_ZN6thrust23allocator_traits_detail5gozerEv"):
        assert counted(EMPTY.replace("_Z7droppedv", purpose)) == (1, [])


def test_a_kernel_of_an_unnamed_namespace_counts_too() -> None:
    inner = (WORKS + EMPTY).replace(".visible .entry", ".entry")
    assert counted(inner) == (2, ["_Z7droppedv"])


def test_what_nobody_counted_is_not_called_nothing() -> None:
    assert emptied([{"file": "a.cu", "dropped": ["k"]}, {"file": "b.cu", "dropped": []}]) == ["a.cu"]
    assert emptied([{"file": "a.cu", "dropped": []}, {"file": "b.cu", "dropped": 0}]) is None
    row = {"torch": "2.7.1", "cuda": "11.8", "capability": "3.5", "files": 1, "compiled": 1}
    page = "| release | CUDA | for |\n|---|---|\n"
    assert sweep.told(page, [{**row, "refused": [], "source": ""}]).endswith("| 1 of 1 | 1 | 0 | not counted |\n")


def test_the_row_of_another_card_says_whose_ptx_it_was() -> None:
    assert _made("6.1", "6.1") == "nvcc to PTX and ptxas"
    assert _made("6.1", "7.0") == "the PTX for 6.1 through ptxas for 7.0"


def test_the_page_tells_what_the_table_holds() -> None:
    rows = json.loads((sweep.ROOT / "src/rekindle/knowledge/builds/sweeps.json").read_text(encoding="utf-8"))["sweeps"]
    page = sweep.PAGE.read_text(encoding="utf-8")
    assert sweep.told(page, rows) == page
    assert sweep.told(page, [{**rows[0], "compiled": 1}]) != page
