"""Every class of fault that `review` names, in the shells it occurs in, and what must not be called a fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rekindle.core.findings import State
from rekindle.core.version import Version
from rekindle.knowledge.builds.script_rules import rules, script_rules
from rekindle.model.card import Capability
from rekindle.review import report
from rekindle.review.document import read
from rekindle.review.question import Asked
from rekindle.review.review import Reviewed, review_script

DATA = Path(__file__).parent.parent / "data" / "review"
TORCH_SH = "cd pytorch\npython setup.py bdist_wheel\n"


def reviewed(name: str, text: str, *, gpu: str | None = None, torch: str | None = None) -> Reviewed:
    return review_script(
        read(text, name=name),
        Asked(gpus=(Capability.parse(gpu),) if gpu else (), torch=Version(torch) if torch else None),
    )


def found(name: str, text: str, *, gpu: str | None = None, torch: str | None = None) -> list[tuple[str, int]]:
    answer = reviewed(name, text, gpu=gpu, torch=torch)
    return [(remark.id, remark.line) for remark in answer.remarks if remark.state is not State.PASS]


@pytest.mark.parametrize(
    ("value", "rule", "right"),
    [
        ("l2.0", "architecture-list", "12.0"),
        ("12.O", "architecture-list", "12.0"),
        ("12,0", "architecture-separator", None),
        ("12.0PTX", "architecture-list", "12.0+PTX"),
        ("Lovelace", "architecture-list", None),
        ("8.9,12.0", "architecture-separator", "8.9;12.0"),
        ("sm120", "architecture-list", "12.0"),
        ("sm_120", "architecture-list", "12.0"),
        ("compute_86", "architecture-list", "8.6"),
        ("120", "architecture-list", "12.0"),
        ("8.6+ptx", "architecture-list", "8.6+PTX"),
        ("8.4", "architecture-list", "8.0"),
    ],
)
def test_a_list_that_torch_cannot_read(value: str, rule: str, right: str | None) -> None:
    answer = reviewed("a.sh", f'export TORCH_CUDA_ARCH_LIST="{value}"\n{TORCH_SH}')
    remark = next(each for each in answer.remarks if each.id == rule)
    assert remark.state is State.FAIL and remark.line == 1
    if right is not None:
        assert remark.corrected == f'export TORCH_CUDA_ARCH_LIST="{right}"'


@pytest.mark.parametrize(
    "value", ["8.6", "8.6 9.0+PTX", "7.0;7.5;8.0+PTX", "12.0", "9.0a", "Ampere", "Turing;8.6", "Common"]
)
def test_a_list_that_torch_reads(value: str) -> None:
    rules = [rule for rule, _ in found("a.sh", f'export TORCH_CUDA_ARCH_LIST="{value}"\n{TORCH_SH}')]
    assert not [rule for rule in rules if rule.startswith("architecture")]


FAULTS = json.loads((DATA / "faults.json").read_text(encoding="utf-8"))
RIGHT = json.loads((DATA / "right.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", FAULTS, ids=[case["id"] for case in FAULTS])
def test_the_fault_is_found(case: dict[str, Any]) -> None:
    assert (case["rule"], case["line"]) in found(case["name"], case["text"], gpu=case["gpu"], torch=case["torch"])


@pytest.mark.parametrize("case", RIGHT, ids=[case["id"] for case in RIGHT])
def test_what_is_right_is_left_alone(case: dict[str, Any]) -> None:
    answer = reviewed(case["name"], case["text"])
    assert [(each.id, each.line, each.found) for each in answer.remarks if each.state is not State.PASS] == []
    assert answer.not_understood == ()


def test_every_rule_of_the_table_is_raised_somewhere() -> None:
    """A row that no code names is a rule that cannot fail."""
    code = "".join(path.read_text(encoding="utf-8") for path in Path(report.__file__).parent.rglob("*.py"))
    rows = {row.rule for row in script_rules().line}
    unused = [id for id in rules() if f'"{id}"' not in code and not id.startswith("option-n") and id not in rows]
    assert unused == []


def test_no_word_in_braces_is_left_in_a_sentence() -> None:
    for case in FAULTS:
        for remark in reviewed(case["name"], case["text"], gpu=case["gpu"], torch=case["torch"]).remarks:
            for sentence in (remark.found, remark.why, remark.source or ""):
                assert "{" not in sentence.replace("${", "").replace("{0}", ""), (remark.id, sentence)


BRANCHES = """\
#!/bin/bash
set -e
git clone --recursive --branch v2.5.1 https://github.com/pytorch/pytorch
cd pytorch
if [ "$1" = "old" ]; then
  export CUDA_HOME=/usr/local/cuda-11.8
  export TORCH_CUDA_ARCH_LIST="3.7"
else
  export CUDA_HOME=/usr/local/cuda-12.4
  export TORCH_CUDA_ARCH_LIST="8.6"
fi
export MAX_JOBS=4
python setup.py bdist_wheel
"""


def test_values_of_both_branches_count_as_either() -> None:
    never = {"architecture-not-the-card", "toolkit-cannot-target", "toolkit-not-for-the-card", "two-toolkits"}
    for gpu in ("3.7", "8.6"):
        assert not never & {rule for rule, _ in found("build.sh", BRANCHES, gpu=gpu)}
    assert "architecture-not-the-card" in {rule for rule, _ in found("build.sh", BRANCHES, gpu="9.0")}
    only = BRANCHES.replace("/usr/local/cuda-11.8", "/usr/local/cuda-12.6")
    assert ("toolkit-cannot-target", 7) in found("build.sh", only)


def test_a_fault_in_the_first_branch_is_found_too() -> None:
    script = BRANCHES.replace("cuda-11.8", "cuda-13.0")
    assert ("toolkit-too-new-for-torch", 6) in found("build.sh", script)


def test_what_an_env_reads_and_nobody_set_is_told() -> None:
    text = (
        "FROM ubuntu:22.04\nARG JOBS\nENV MAX_JOBS=$JOBS ARCHS=$CARD_LIST PATH=/opt/bin:$PATH\nRUN pip install torch\n"
    )
    assert found("Dockerfile", text).count(("undefined", 3)) == 1


def test_a_switch_that_asks_for_the_compiled_part_makes_a_build() -> None:
    text = "#!/bin/bash\nset -e\npip install torch==2.5.1\nBUILD_EXT=1 pip install colossalai\n"
    assert {"isolation", "isolation-maybe"} & {rule for rule, _ in found("build.sh", text)}
