"""The catalogue of causes holds together: every row can be shown, filled, found and sourced."""

from __future__ import annotations

import re

import pytest
import re2

from rekindle.diagnose.diagnosis import diagnose_text
from rekindle.diagnose.expressions import World, facts_of, holds, names
from rekindle.diagnose.facts import Facts
from rekindle.diagnose.scan import PREFILTER
from rekindle.diagnose.text import bare
from rekindle.knowledge.logs.signatures import CauseRow, LogSignature, causes
from tools.causes import pages

ROWS = causes()
SIGNATURES = [(row, signature) for row in ROWS for signature in row.signature]
NAMES = [f"{row.id}-{signature.id}" for row, signature in SIGNATURES]


def test_labels_and_signatures_have_names_of_their_own() -> None:
    assert len({row.id for row in ROWS}) == len(ROWS)
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_a_cause_says_what_it_means_and_what_to_do(row: CauseRow) -> None:
    assert row.source
    assert row.observed_at
    assert row.title
    assert not row.title.endswith(".")
    assert len(row.explanation) > 40
    assert row.by_hand
    assert any("{" not in step.text and not (step.command and "{" in step.command) for step in row.fix), (
        "no step can be shown when nothing is known"
    )
    assert set(row.over) <= {other.id for other in ROWS}
    assert row.id not in row.over


@pytest.mark.parametrize(("row", "signature"), SIGNATURES, ids=NAMES)
def test_the_example_is_matched_and_found_in_a_large_log(row: CauseRow, signature: LogSignature) -> None:
    text = bare(signature.example)
    assert any(re2.search(pattern, text) for pattern in signature.match)
    if not signature.near:
        assert PREFILTER.search(signature.example.encode()), "the line would not be looked at in a large log"
    assert 0 < signature.weight <= 100


@pytest.mark.parametrize(("row", "signature"), SIGNATURES, ids=NAMES)
def test_the_example_alone_leads_to_its_cause(row: CauseRow, signature: LogSignature) -> None:
    if signature.near or signature.log or signature.soft or (signature.when and signature.sample):
        return
    # What says that it is a build would turn a failure at run time into one of the compiler.
    ending = "" if signature.unless else "\nninja: build stopped: subcommand failed."
    found = diagnose_text(f"{signature.example}{ending}\n")
    assert found.causes, "the line was not seen as anybody's message"
    if signature.vague and (signature.when or signature.weight <= 45):
        assert row.id in {cause.label for cause in found.causes}, "not even offered"
    else:
        assert found.causes[0].label == row.id


@pytest.mark.parametrize(("row", "signature"), SIGNATURES, ids=NAMES)
def test_what_a_page_shows_is_read_as_that_cause(row: CauseRow, signature: LogSignature) -> None:
    found = diagnose_text((signature.sample or signature.example).strip("\n") + "\n")
    labels = [cause.label for cause in found.causes]
    if not signature.vague:
        assert labels[:1] == [row.id]
    else:
        assert row.id in labels or signature.when is not None, "the page says that it is offered"


def test_every_value_a_fix_asks_for_is_one_that_can_be_had() -> None:
    known = {"os", "torch", "cuda", "python", "toolset", "gpu_name", "jobs", "arch", "gpu", "cuda_dashed", "arch_asked"}
    known |= {"fits_toolset", "fits_gcc", "gpu_sm", "last_cudnn", "last_branch", "driver", "package", "package_name"}
    known |= {"failing", "failing_distribution", "distribution", "test_library", "toolkit"}
    known |= {"studio_toolset", "part_option", "companions", "variant", "index_story", "early_cuda"}
    known |= {"cudnn_pip", "cudnn_old", "symbol_library", "owner_package", "from_source"}
    known |= {"arch_first", "knowing_cuda", "torch_arch", "torch_first", "torch_takes", "never_arch", "needs_driver"}
    known |= {"belonging", "own_cuda_input", "load_vcvars", "arch_last", "arch_from", "arch_flag", "card_last"}
    known |= {"newest_offered", "name_package", "module_meant"}
    known |= {"own_arch", "found_lacks", "torch_toolkit_lacks", "driver_words", "newer_branch", "branch_is_last"}
    known |= {"driver_enough", "driver_runs", "cuda_driver_linux", "cuda_driver_windows", "needs_driver_windows"}
    known |= {"driver_said", "driver_said_major", "driver_lines", "triton_first", "triton_torch"}
    known |= {"runs_as", "variant_cuda", "variant_driver_linux", "variant_driver_windows"}
    known |= {"card_first", "header_package", "library_package", "library_pip", "cudnn_package"}
    known |= {"gcc_here", "gcc_wanted", "gcc_cuda", "studio", "studio_year", "customizations", "std_gcc", "std_cuda"}
    known |= {"torch_lines", "found_major", "torch_cuda_line", "wanted_package", "torch_import", "cmake_package"}
    known |= {
        "home",
        "home_where",
        "home_fits",
        "home_forced",
        "home_install",
        "torch_here",
        "old_system_release",
        "built_abi",
        "other_abi",
    }
    known |= {"missing_home", "missing_where", "missing_install", "xformers_fits", "torchcodec_fits", "built_set"}
    known |= {"pairing", "cuda_lines", "cuda_line", "driver_install", "module_build", "runtime_image"}
    known |= {"requires_python", "python_fits", "arch_digits", "glibc", "lacked_sm", "branch_beyond"}
    known |= {"name_since", "name_gone", "asking", "bnb_before", "said_line"}
    known |= {"package_where", "package_install", "package_story", "nearest_release", "wheel_python", "companion_fits"}
    known |= {"system_package", "library_cuda_dotted", "built_abi", "other_abi"}
    known |= {
        "older_toolset",
        "oldest_card",
        "several_cards",
        "newest_number",
        "cupy_fits",
        "cuda_package",
        "index_address",
        "index_python",
    }
    known |= {"toolset_cuda", "stl_toolset", "tool_package", "tool_winget", "fits_toolset", "std_name", "std_header"}
    known |= {
        "cudnn_least",
        "cudnn_pinned",
        "toolkit_fits",
        "name_cuda",
        "nvidia_part",
        "new_torch_name",
        "ptx_cuda",
        "generator_cmake",
    }
    known |= {
        "home_builds",
        "program",
        "early_toolset",
        "bundled_package",
        "right_folder",
        "torch_folder",
        "arch_name_number",
        "status_program",
        "windows_build",
        "vendor_hint",
        "library_cuda",
        "hidden",
        "vision_fits",
        "parties",
        "parties_torch",
        "parties_set",
        "triton_windows",
        "python_for_torch",
        "torch_for_python",
    }
    made = {"said", "log", "target", "cudnn_never", "numpy_older"}
    nothing = World(fields={}, values={}, facts={})
    for row in ROWS:
        patterns = " ".join(p for signature in row.signature for p in (*signature.match, *signature.near))
        groups = set(re.findall(r"\(\?P<(\w+)>", patterns))
        for step in row.fix:
            asked = set(re.findall(r"\{(\w+)\}", step.text + (step.command or "")))
            assert asked <= known | groups, (row.id, asked - known - groups)
            if step.when:
                holds(step.when, nothing)
                unknown = names(step.when) - known - groups - facts_of(Facts()).keys() - made
                assert unknown == set(), (row.id, unknown)


def test_every_cause_has_its_page() -> None:
    assert {f"{row.id}.md" for row in ROWS} < pages().keys()
    assert all(text.startswith("# ") for text in pages().values())
