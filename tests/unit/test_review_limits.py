"""Hostile scripts: `review` answers within its limits, and says what it did not read."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from rekindle.core import codec
from rekindle.core.errors import BadInput, MissingTool
from rekindle.review.document import Document, read
from rekindle.review.other_files import context_of
from rekindle.review.readers import grammar
from rekindle.review.review import Reviewed, review_script
from rekindle.review.trace import LONGEST_VALUE
from support import pace


def answered(text: str, name: str, seconds: float) -> Reviewed:
    begin = time.process_time()
    answer = review_script(read(text, name=name))
    assert time.process_time() - begin < pace.seconds(seconds)
    return answer


@pytest.mark.parametrize(
    ("name", "first", "line"),
    [
        ("a.bat", "set A=0123456789", "set A=%A%%A%"),
        ("a.sh", "A=0123456789", 'A="$A$A"'),
        ("a.ps1", "$A = '0123456789'", '$A = "$A$A"'),
        ("Dockerfile", "FROM ubuntu\nENV A=0123456789", "ENV A=$A$A"),
        ("Makefile", "A := 0123456789", "A := $(A)$(A)"),
    ],
)
def test_a_value_that_doubles_thirty_times(name: str, first: str, line: str) -> None:
    text = "\n".join([first, *[line] * 30]) + "\n"
    assert len(text) < 1500
    answer = answered(text, name, 5)
    assert [item.why for item in answer.not_understood] == ["too long once its variables are filled in"]
    from rekindle.review.review import trace_of

    assert max(len(item.value) for item in trace_of(read(text, name=name)).assignments) <= LONGEST_VALUE


@pytest.mark.long
@pytest.mark.parametrize("name", ["a.bat", "a.sh", "a.ps1"])
@pytest.mark.parametrize("sign", ["(", "{", "if exist x (\n", "$(", '"'])
def test_what_is_nested_without_end(name: str, sign: str) -> None:
    answered(sign * 20_000, name, 20)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("a.bat", 'set "PATH=C:\\x;%PATH%" && python -m pip install "numpy<2" || exit /b 1\n'),
        ("a.bat", "conda activate x\n"),
        ("a.sh", "conda activate x\npip install torch==2.0.1+cu118\n"),
        ("a.sh", "export CUDA_HOME=/x\nTORCH_CUDA_ARCH_LIST=6.1 pip install .\n"),
        ("a.sh", "CC=gcc\npython setup.py install\n"),
        ("Dockerfile", "FROM nvidia/cuda:12.1.0-base-ubuntu22.04\nRUN apt-get install python3\n"),
    ],
)
def test_four_megabytes_are_answered_in_seconds(name: str, line: str) -> None:
    text = line * ((4 << 20) // len(line) - 1)
    answer = answered(text, name, 40)
    assert any("only the first" in item.why or "too many" in item.why for item in answer.not_understood)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("requirements.txt", "x" + "==1," * 30 + "!\n"),
        ("a.sh", "pip install 'x" + "==1 ," * 2000 + "!'\n"),
        ("notes.txt", "a" + " " * 300_000 + "!\n"),
        ("meta.yaml", "package: x\nrequirements: y\na: " + "{{" + " " * 300_000 + "\n"),
        ("meta.yaml", "package: x\nrequirements: y\na: " + "{% set " * 50_000 + "\n"),
        ("Makefile", "a:\n\t" + "$(" * 100_000 + "\n"),
        ("pyproject.toml", "[project]\ndependencies = [" + '"torch==1' + ",==1" * 5000 + '!"]\n'),
        ("environment.yml", "dependencies:\n  - " + "torch=" * 20_000 + "\n"),
        ("a.sh", "pip " * 20_000 + "install " * 20_000),
        ("a.sh", "apt install " + "cuda-12- " * 20_000),
        ("a.sh", "sh NVIDIA-Linux-" + "-x86-NVIDIA-Linux-" * 20_000),
        ("a.ps1", "choco install python " + "-x --version " * 10_000),
        ("a.ps1", "x " + "$a\\" * 20_000 + " -D=1," * 10_000),
        ("a.yml", "\n" * 60_000 + "run: x\n"),
        ("a.yml", "run: " + "{{ " * 60_000),
        ("a.yml", "a." * 60_000 + "run: x"),
        ("a.yml", "image: " + "$a" * 60_000),
        ("a.ipynb", '{"cells": [{"cell_type": "code", "source": [' + '"!pip install a\\n",' * 5000 + '"!x"]}]}'),
        ("a.ipynb", '{"cells": [{"cell_type": "code", "source": ["!' + "{a}" * 60_000 + '"]}]}'),
        ("a.py", "\n" * 60_000 + "!a"),
        ("tox.ini", "[testenv]\ncommands = " + "{" * 60_000),
        ("tox.ini", "[testenv]\ndeps = " + "a," * 60_000),
        ("a.def", "Bootstrap: docker\nFrom:" + " " * 60_000),
        ("a.sh", "for a in 1 2 3 4 5 6 7 8; do\n" * 6 + "pip install $a\n" + "done\n" * 6),
        ("a.sh", "cat > a <<E\n" + "$a" * 60_000 + "\nE\n"),
        ("requirements.txt", "--index-url https://download.pytorch.org/whl/cu" + "1" * 60_000),
    ],
    ids=range(26),
)
def test_a_text_that_an_expression_could_hang_on(name: str, text: str) -> None:
    answered(text, name, 10)


_STEP = "on: push\njobs:\n  a:\n    runs-on: x\n    steps:\n      - run: "


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.ps1", '[Environment]::SetEnvironmentVariable("a", x' + " " * 15_000 + "y\n"),
        ("a.ps1", "pip install torch\n" + " " * 300_000 + "!\n"),
        ("a.ps1", "if ($x) { " * 30_000),
        ("a.ps1", "if ($x) {\n" * 6_000),
        ("a.yml", _STEP + ">\n" + "         a=1 |Out-File\n" * 5_000),
        ("a.yml", _STEP + ">\n" + "         ${{  a\n" * 5_000),
        ("Dockerfile", "FROM a\nENV X=" + "${a:-aaa" * 40_000),
        ("Dockerfile", "FROM a\nENV X=" + "${a:-aaa\\\n" * 5_000),
        ("Dockerfile", "FROM a\nENV " + "_" * 300_000),
        ("a.bat", "pip install torch\nset A=%a:" + "=" * 300_000),
        ("a.bat", "for /f %%i in (" + "( `" * 5_000 + ") do x\n"),
        ("a.bat", "pip install torch |\n" * 6_000),
        ("a.sh", "a() { " * 50_000),
        ("a.sh", "a() {\n" * 6_000),
        ("a.sh", "sudo " + "a \\\n" * 5_000),
    ],
    ids=range(15),
)
def test_a_line_or_a_nest_without_end(name: str, text: str) -> None:
    answered(text, name, 4)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yml", _STEP + '"echo \\ud800 ${{ a }} A=1 >> $GITHUB_ENV"\n'),
        ("a.ipynb", '{"cells": [{"cell_type": "code", "source": ["!pip install \\ud800 torch"]}]}'),
        ("a.py", "import os\nos.system('pip install \\ud800 torch')\n"),
    ],
)
def test_half_a_letter_is_not_understood(name: str, text: str) -> None:
    """An internal error before."""
    answer = answered(text, name, 2)
    assert ["half a letter" in item.why for item in answer.not_understood] == [True]
    assert codec.to_json(answer)


@pytest.mark.long
def test_of_a_text_that_is_no_powershell_a_part_is_read() -> None:
    """The grammar took 23 s for it."""
    answer = answered("${A:-b ENV X=$X \t :: - run: | )\\\n" * 6_000, "a.ps1", 10)
    assert any("only the first 120,000 letters" in item.why for item in answer.not_understood)


def test_a_line_that_nobody_wrote_is_named() -> None:
    answer = answered("pip install torch==2.0.0\necho " + "a " * 10_000 + "\npip install x\n", "a.sh", 2)
    assert [(item.line, item.why) for item in answer.not_understood] == [(2, "longer than 16,384 letters")]


@pytest.mark.parametrize(
    "text",
    [
        "$env:CUDA_HOME = 'C:\\CUDA\\v12.99999999999999999999999'\npip install torch\n",
        '\nRucheck" {\n    python -c "impor"\n}\nWrite-Host "y: $venv"\n',
        "| tee x\n",
    ],
)
def test_odd_powershell_breaks_nothing(text: str) -> None:
    answered(text, "a.ps1", 5)


def test_an_anchor_bomb_is_not_unfolded() -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    text = "\n".join([*rows, "jobs:", "  b:", "    runs-on: *a11", "    steps: *a11", ""])
    answered(text, "ci.yml", 10)


def test_broken_yaml_is_named_with_its_line() -> None:
    answer = answered("jobs:\n  b:\n    steps: [\n  x: }\n", "ci.yml", 5)
    assert answer.not_understood and answer.not_understood[0].line >= 3


def test_functions_that_call_each_other() -> None:
    answered("a() { b; b; b; }\nb() { a; a; a; }\na\n", "a.sh", 10)
    answered("function A { B; B }\nfunction B { A; A }\nA\n", "a.ps1", 10)
    answered(":a\ncall :b\ncall :b\n:b\ncall :a\ncall :a\n", "a.bat", 10)


def test_without_a_grammar_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """tree-sitter has no wheels for the newest Pythons."""
    monkeypatch.setitem(sys.modules, "tree_sitter_bash", None)
    grammar._parser.cache_clear()
    with pytest.raises(MissingTool) as seen:
        review_script(read("pip install torch\n", name="a.sh"))
    assert "bash grammar" in str(seen.value) and "tree-sitter-bash" in (seen.value.hint or "")
    grammar._parser.cache_clear()
    assert isinstance(read("echo\n", name="a.bat"), Document)
    assert review_script(read("echo hi\n", name="a.bat")).remarks == (), "batch needs no grammar"


def test_a_line_that_begins_thousands_of_texts() -> None:
    text = "cat <<A " * 2_000 + "\n" + "x\nA\n" * 20_000
    with pytest.raises(BadInput, match="more than 100 texts"):
        review_script(read(text, name="a.sh"))


def test_a_condition_that_is_nested_deeply() -> None:
    condition = "(" * 900 + "os_name == 'x'" + ")" * 900
    answer = review_script(read(f"torch==2.1.0 ; {condition}\n", name="requirements.txt"))
    assert answer.dialect == "requirements"


def test_the_words_of_an_install_are_searched_once() -> None:
    """They were joined anew for every requirement: a list of 6,000 took two seconds, of them 36 million steps."""
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    document = read("uv pip install -r x for %%i in (1 2 3) do ( ::\n" * 2000, name="requirements.txt")
    sys.setprofile(count)
    try:
        review_script(document)
    finally:
        sys.setprofile(None)
    assert calls < 3_000_000, calls


def test_a_small_workflow_that_names_a_command_a_million_times() -> None:
    steps = "".join(f"x{i + 1}: &x{i + 1} [*x{i},*x{i}]\n" for i in range(30))
    text = f"x0: &x0 {{run: pip install torch}}\n{steps}jobs:\n  b:\n    runs-on: u\n    steps: *x30\n"
    answered(text, "w.yml", 3)


def test_a_dockerfile_of_nothing_that_docker_knows() -> None:
    answered("FROM x\n" + "    @' ${A:-${B}}\n" * 6000, "Dockerfile", 2)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", 'a = ["x"]\n' + "a += a\n" * 40),
        ("a.py", 'a0 = "x"\n' + "".join(f'a{i + 1} = f"{{a{i}}}{{a{i}}}"\n' for i in range(40))),
        ("a.py", "def f(x):\n" + "    f(x)\n" * 100 + 'f("a")\n'),
        ("a.md", "```dockerfile\nFROM a\n```\n" * 1500),
        ("a.md", "```yaml\ndependencies:\n  - a\n```\n" * 1500),
    ],
)
def test_code_and_notes_that_grow_are_cut(name: str, text: str) -> None:
    answered(text, name, 3)


STEP = "on: push\njobs:\n  a:\n    runs-on: x\n    steps:\n      - if: {}\n        run: pip install torch\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Makefile", "A += 0123456789\n" * 5000),
        ("Makefile", "A = $(A)$(A)$(A)\nall:\n" + "\tnvcc $(A) a.cu\n" * 300),
        ("Makefile", "A = " + "x \\\n" * 5000),
        ("Makefile", "define A\n" + "x\n" * 5000),
        ("Dockerfile", "# a=b\n" * 2000 + "# escape=`\nFROM x\nRUN a \\" + " \n" * 2000),
        (".github/workflows/a.yml", STEP.format("a ==" + " " * 50_000 + "(")),
        (".github/workflows/a.yml", STEP.format("contains(a,'" + "x" * 50_000)),
        ("a.sh", "cd x" + " " * 50_000 + "/path/to/it\n"),
        ("requirements.txt", "a" + " " * 50_000 + "=\n"),
    ],
)
def test_the_worst_of_what_goes_on_and_of_conditions(name: str, text: str) -> None:
    answered(text, name, 5)


def test_the_worst_of_what_is_copied(tmp_path: Path) -> None:
    begin = time.process_time()
    for text in ("COPY" + " " * 50_000, "COPY " + "a " * 50_000, "COPY " * 20_000):
        context_of(tmp_path, text)
    assert time.process_time() - begin < pace.seconds(2)
