"""A first step is one that the same log does not contradict, and a log that tells a failure is not called good."""

from __future__ import annotations

import pytest

from rekindle.core.command import Command
from rekindle.diagnose.answer import LogOutcome
from rekindle.diagnose.diagnosis import diagnose_text
from rekindle.diagnose.evidence import refused
from rekindle.diagnose.facts import Facts
from rekindle.diagnose.fix import command_of
from rekindle.diagnose.outcome import CUT


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (("pip", "install", "torch==1.7.1+cu101"), Facts(python="3.12", os="linux")),
        (("pip", "install", "torch", "--index-url", "https://x/whl/cu130"), Facts(driver="470.57.02", os="linux")),
        (("rekindle", "toolchain", "install", "cuda==11.6"), Facts(torch="2.1.0", variant="cu121")),
    ],
)
def test_what_python_driver_or_torch_of_the_log_rules_out_is_not_proposed(words: tuple[str, ...], facts: Facts) -> None:
    assert refused(Command(*words), facts)
    assert not refused(Command(*words), Facts())


def test_a_line_of_a_unix_administrator_is_quoted_for_a_unix_shell() -> None:
    assert str(command_of("sudo apt purge '^nvidia-.*'", "windows", {})) == 'sudo apt purge "^nvidia-.*"'


def _first(log: str) -> str:
    return str(diagnose_text(log).causes[0].fix.commands[0])


def test_the_python_of_a_user_site_and_of_a_one_click_installer_are_where_they_are() -> None:
    said = "ImportError: 4 bit requires bitsandbytes>=0.39.0 - please upgrade"
    home = "/home/u/.local/lib/python3.12/site-packages/transformers/a.py"
    click = r"C:\oobabooga_windows\installer_files\env\lib\site-packages\transformers\a.py"
    assert _first(f'File "{home}", line 1\n{said}').startswith("python3.12 -m pip install")
    local = home.replace("transformers/a.py", "torch/functional.py")
    assert _first(f'File "{local}", line 1\nRuntimeError: cuFFT error: CUFFT_INTERNAL_ERROR') == "rekindle install"
    assert r"installer_files\env\python.exe -m pip" in _first(f'File "{click}", line 1\n{said}')


def test_a_true_after_an_exception_in_words_does_not_take_it_back() -> None:
    log = "In my code I get FooError: no such thing.\n>>> torch.cuda.is_available()\nTrue\n"
    assert diagnose_text(log).outcome is LogOutcome.UNKNOWN


def test_an_error_that_stands_there_is_not_missing() -> None:
    log = (
        "Traceback (most recent call last):\n  with context:\nAttributeError: __enter__\n"
        'Traceback (most recent call last):\n  File "x.py", line 8, in <module>\n    sys.exit(main())\n'
    )
    assert diagnose_text(log).summary != CUT


def test_cards_that_no_driver_has_together_are_in_two_machines() -> None:
    log = "GPU: RTX 5070 Ti\nRuntimeError: CUDA error: no kernel image is available\nsame on the old GPU: GTX 1050 Ti\n"
    assert "sm_61" not in _first(log)


@pytest.mark.parametrize(
    ("log", "wanted"),
    [
        ("ImportError: peft>=0.5.0 is required but you have 0.4.0", 'pip install -U "peft>=0.5.0"'),
        ("ValueError: accelerate version must be at least 0.26.0", 'pip install -U "accelerate>=0.26.0"'),
        ("RuntimeError: Please install transformers>=4.36 to use it", 'pip install -U "transformers>=4.36"'),
        ("ImportError: xformers requires torch>=2.0", "rekindle install"),
    ],
)
def test_a_message_that_names_the_release_is_taken_at_its_word(log: str, wanted: str) -> None:
    assert diagnose_text(log).causes[0].label == "package_api_changed"
    assert _first(log) == wanted


@pytest.mark.parametrize(
    "log",
    [
        "RuntimeError: CUDA version must be at least 11.6",
        "Exception: requires Python>=3.10",
        "ValueError: the version must be at least 2.0",
    ],
)
def test_what_is_no_package_is_not_installed_as_one(log: str) -> None:
    assert all(cause.label != "package_api_changed" for cause in diagnose_text(log).causes)
