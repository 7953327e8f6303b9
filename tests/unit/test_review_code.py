"""`rekindle review` judges CUDA code that is not torch's: what it is compiled for, with what, and for which card."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rekindle.core.findings import State
from rekindle.knowledge.torch.releases import newest_python
from rekindle.review.document import read
from rekindle.review.question import question_from_options
from rekindle.review.report import text
from rekindle.review.review import Review, Reviewed, review_script

WHL = "https://download.pytorch.org/whl"

DATA = Path(__file__).parent.parent / "data"


def reviewed(script: str, card: str, name: str = "a.sh", **place: str) -> Reviewed:
    return review_script(read(script, name=name), question_from_options((card,), **place))  # type: ignore[arg-type]


def verdict(script: str, card: str, name: str = "a.sh", **place: str) -> str:
    answer = reviewed(script, card, name, **place)
    return "refused" if answer.refused else "accepted" if answer.answered else "open"


MODULE = "module load cuda/12.2\n"


@pytest.mark.parametrize(
    ("script", "card", "expected"),
    [
        ("nvcc -arch=sm_89 -o a a.cu\n", "RTX 5080", "accepted"),  # its PTX is compiled by the driver
        ("nvcc -gencode arch=compute_89,code=sm_89 -o a a.cu\n", "RTX 5080", "refused"),
        # The folder of the compiler says which toolkit it is.
        ("/usr/local/cuda-12.6/bin/nvcc -arch=sm_35 -o a a.cu\n", "Tesla K40c", "refused"),
        ("/usr/local/cuda-11.8/bin/nvcc -arch=sm_35 -o a a.cu\n", "Tesla K40c", "accepted"),
        ("ccache /opt/cuda-13.0/bin/nvcc -arch=sm_61 -o a a.cu\n", "GTX 1080 Ti", "refused"),
        ("nvcc -gencode arch=compute_86,code=sm_86 -o a a.cu\n", "RTX 4090", "accepted"),
        ("nvcc -gencode arch=compute_80,code=[sm_80,compute_80] -o a a.cu\n", "RTX 4090", "accepted"),
        ("nvcc -arch sm_90a -o a a.cu\n", "RTX 5090", "refused"),
        ("nvcc --gpu-architecture=compute_70 --gpu-code=sm_70 -o a a.cu\n", "RTX 3060", "refused"),
        ("CC=35\nnvcc -arch=sm_$CC -o a a.cu\n", "Tesla K80", "accepted"),
        ("nvcc -arch=sm_$1 -o a a.cu\n", "Tesla K80", "open"),
        # Without quotes, a variable is as many words as it holds.
        ("F='-gencode arch=compute_61,code=sm_61 -O3'\nnvcc $F -o a a.cu\n", "RTX 2080 Ti", "refused"),
        ("F='-gencode arch=compute_75,code=sm_75 -O3'\nnvcc ${F} -o a a.cu\n", "RTX 2080 Ti", "accepted"),
        ("nvcc -o a a.cu\n", "RTX 3060", "accepted"),  # whichever toolkit: the PTX of its default runs there
        ("nvcc -o a a.cu\n", "GTX 1080", "open"),
        (f"{MODULE}nvcc -o a a.cu\n", "GTX 1080", "accepted"),
        ("module load cuda/13.0\nnvcc -o a a.cu\n", "GTX 1080", "refused"),
        (f"{MODULE}nvcc -arch=sm_120 -o a a.cu\n", "RTX 5090", "refused"),
        (f"{MODULE}nvcc -arch=native -o a a.cu\n", "RTX 5090", "refused"),
        (f"{MODULE}nvcc -arch=native -o a a.cu\n", "RTX 4090", "accepted"),
        ("nvcc --version\n", "RTX 4090", "open"),
        ("cmake -B build -DCMAKE_CUDA_ARCHITECTURES='75;86-real' .\n", "RTX 4090", "accepted"),
        ("cmake -B build -DCMAKE_CUDA_ARCHITECTURES=86-real .\n", "RTX 5090", "refused"),
        ("cmake -B build -DWITH_CUDA=ON -DCUDA_ARCH_BIN=8.6 ..\n", "RTX 5090", "refused"),
        ("cmake -B build -DWITH_CUDA=ON -DCUDA_ARCH_BIN=8.6 -DCUDA_ARCH_PTX=8.6 ..\n", "RTX 5090", "accepted"),
        ("cmake -B build -DWITH_CUDA=ON ..\n", "RTX 5090", "open"),
        ("cmake -B build -DWITH_CUDA=OFF ..\n", "RTX 5090", "open"),
        (f"{MODULE}cmake -B build -DGGML_CUDA=ON\n", "GTX 1070", "accepted"),
        ("module load cuda/13.0\ncmake -B build -DGGML_CUDA=ON\n", "GTX 1070", "refused"),
        (f"{MODULE}CMAKE_ARGS='-DGGML_CUDA=on' pip install llama-cpp-python\n", "GTX 1070", "accepted"),
        (
            f"{MODULE}CMAKE_ARGS='-DGGML_CUDA=on -DCMAKE_CUDA_ARCHITECTURES=86' pip install llama-cpp-python\n",
            "GTX 1070",
            "refused",
        ),
    ],
)
def test_cuda_code_that_is_not_torchs_is_judged(script: str, card: str, expected: str) -> None:
    assert verdict(script, card) == expected


def test_the_words_of_a_variable_in_cmd() -> None:
    script = "set F=-gencode arch=compute_61,code=sm_61 -O3\nnvcc %F% -o a a.cu\n"
    assert verdict(script, "RTX 2080 Ti", "a.bat") == "refused"
    assert verdict(script, "GTX 1080", "a.bat") == "accepted"


def test_a_driver_that_does_not_run_the_toolkit_is_named() -> None:
    script = "module load cuda/12.4\nnvcc -arch=sm_86 -o a a.cu\n"
    assert verdict(script, "RTX 3060", driver="470.82") == "refused"
    assert verdict(script, "RTX 3060", driver="560.35") == "accepted"


def test_native_in_an_image_is_not_known() -> None:
    docker = (
        "FROM nvidia/cuda:12.2.0-devel-ubuntu22.04\nRUN cmake -B build -DGGML_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES={}\n"
    )
    assert verdict(docker.format("native"), "RTX 3060", "Dockerfile") == "open"
    assert verdict(docker.format("86"), "RTX 3060", "Dockerfile") == "accepted"


LLAMA = "FROM nvidia/cuda:12.2.0-devel-ubuntu22.04\nRUN git clone https://github.com/ggml-org/llama.cpp{}\n"


@pytest.mark.parametrize(
    ("after", "tag", "rules"),
    [
        ('RUN cmake -DGGML_CUDA=on . && make -j8\nCMD ["./server", "-m", "x"]\n', "",
         {"llama-cpp-changed", "driver-library-absent"}),
        ("RUN make LLAMA_CUBLAS=1\n", "", {"llama-cpp-changed"}),
        ("RUN cmake -DLLAMA_CUBLAS=ON .\n", "", {"llama-cpp-changed"}),
        ("RUN cmake -DLLAMA_CUBLAS=ON .\n", " --branch b2000", set()),
        ("RUN cmake -DGGML_CUDA=on -DCMAKE_EXE_LINKER_FLAGS=-Wl,--allow-shlib-undefined .\n", "", set()),
    ],
)  # fmt: skip
def test_what_llama_cpp_no_longer_has(after: str, tag: str, rules: set[str]) -> None:
    found = {each.id for each in reviewed(LLAMA.format(tag) + after, "GTX 1070", "Dockerfile").remarks}
    assert found & {"llama-cpp-changed", "driver-library-absent"} == rules


def first_line(script: str, card: str, name: str = "a.sh") -> str:
    return text(Review(gpus=("sm_89",), scripts=(reviewed(script, card, name),))).partition("\n")[0]


def test_the_first_line_says_what_is_known_and_what_is_not() -> None:
    line = first_line("pip install torch==1.12.1+cu113 -r more.txt --extra-index-url {WHL}/cu113\n", "RTX 4080")
    assert "UNVERIFIED: torch 1.12.1+cu113 serves GeForce RTX 4080; not known: what `more.txt` asks for" in line


BRANCHES = f"""
if nvidia-smi; then
  pip install torch==2.5.1 --index-url {WHL}/cu121
else
  pip install torch --index-url {WHL}/cpu
fi
"""


def test_the_branch_for_the_cpu_is_not_the_cards() -> None:
    answer = reviewed(BRANCHES, "RTX 5070")
    assert [each.line for each in answer.remarks if each.id.startswith(("torch-no", "wheel-not", "torch-cpu"))] == [3]
    assert verdict(BRANCHES, "RTX 3060") == "accepted"


STAGES = f"""
FROM python:3.11-slim AS cpu
RUN pip install torch==2.5.1 --index-url {WHL}/cpu
FROM python:3.11-slim AS gpu
RUN pip install torch==2.5.1 --index-url {WHL}/cu121
"""


def test_a_stage_for_the_cpu_is_not_what_is_wrong() -> None:
    assert verdict(STAGES, "RTX 3060", "Dockerfile") == "accepted"
    wrong = [each.id for each in reviewed(STAGES, "RTX 5070", "Dockerfile").remarks if each.state.value == "FAIL"]
    assert wrong == ["wheel-not-for-the-card"]


@pytest.mark.parametrize(
    ("line", "card", "warned"),
    [
        ("pip install flash-attn==2.8.3 --no-build-isolation", "RTX 3090", False),  # the project's own wheel
        ("pip install flash-attn==2.1.0 --no-build-isolation", "RTX 3090", True),
        ("pip install flash-attn==2.1.0 --no-build-isolation", "Tesla T4", False),  # nobody should compile it
        ("pip install flash-attn==2.8.3 --no-binary flash-attn --no-build-isolation", "RTX 3090", True),
    ],
)
def test_no_word_about_jobs_where_nothing_is_compiled(line: str, card: str, warned: bool) -> None:
    script = f"pip install torch==2.7.1 --index-url {WHL}/cu128\n{line}\n"
    assert any(each.id == "jobs-unset" for each in reviewed(script, card).remarks) is warned


def test_a_script_that_only_runs_another_names_it() -> None:
    docker = "FROM nvidia/cuda:11.7.1-devel-ubuntu22.04\nRUN cd /app && /bin/bash install.sh\n"
    assert reviewed(docker, "GTX 1080", "Dockerfile").questions == (
        "line 2: what `install.sh` does, which this script runs: it was not read",
    )


def test_the_cuda_of_a_package_beside_torch_counts() -> None:
    listed = "name: x\nchannels: [pytorch, dglteam]\ndependencies:\n- python=3.7\n- pytorch=1.9.0\n- dgl-cuda{}\n"
    assert verdict(listed.format("10.2"), "RTX 3090", "environment.yml") == "refused"
    assert verdict(listed.format("11.1"), "RTX 3090", "environment.yml") != "refused"


@pytest.mark.parametrize(
    ("text", "name", "card", "expected"),
    [
        ("NVCC = nvcc\nFLAGS = -arch=sm_60\nbin/x: a.cpp b.cu\n\t$(NVCC) -o $@ $^ $(FLAGS)\n", "Makefile", "RTX 3060",
         "accepted"),
        ("NVCC = nvcc\n%.o: %.cu\n\t$(NVCC) -arch=$(ARCH) -c $< -o $@\n", "Makefile", "RTX 3060", "open"),
        ("CXX = nvcc\n%.o: %.cu\n\t$(CXX) -arch=compute_13 -code=compute_13 -c $<\n", "Makefile", "RTX 3060", "open"),
        ("cmake -S . -B b -D CMAKE_CUDA_ARCHITECTURES='52;86-real'\n", "a.sh", "RTX 4090", "accepted"),
        ("cmake -S . -B b -D CMAKE_CUDA_ARCHITECTURES='80-real'\n", "a.sh", "GTX 1080", "refused"),
        (f"> ```bash\n> pip install torch==2.3.0+cu118 --extra-index-url {WHL}/cu118\n> ```\n", "README.md", "RTX 5070",
         "refused"),
    ],
)  # fmt: skip
def test_as_people_write_it(text: str, name: str, card: str, expected: str) -> None:
    assert verdict(text, card, name) == expected


UV = f"""
[project]
name = "p"
dependencies = ["torch==2.1.2"]
[tool.uv.sources]
torch = [{{ index = "own", marker = "platform_system == 'Windows'" }}]
[[tool.uv.index]]
name = "own"
url = "{WHL}/cu121"
explicit = true
"""


def test_where_no_source_of_uv_holds_the_usual_index_is_asked() -> None:
    assert verdict(UV, "RTX 5090", "pyproject.toml") == "refused"
    assert verdict(UV, "RTX 3060", "pyproject.toml") == "accepted"
    assert verdict(UV, "RTX 3060", "pyproject.toml", system="windows") == "accepted"


def test_a_list_of_cmake_is_made_longer_and_torchs_options_are_not_missed() -> None:
    found = reviewed("```bash\ncmake -B b -DCMAKE_CUDA_ARCHITECTURES=86 .\n```\n", "RTX 2060", "README.md").remarks
    wrong = [(each.id, each.corrected) for each in found if each.state.value != "PASS"]
    assert wrong == [("architecture-not-the-card", 'cmake -B b -DCMAKE_CUDA_ARCHITECTURES="86;75" .')]


JETSON = """set -e
git clone -b v1.11.0 --recursive https://github.com/pytorch/pytorch.git
cd pytorch
export TORCH_CUDA_ARCH_LIST="{}"
export MAX_JOBS=4
python3 setup.py bdist_wheel
"""


def test_a_jetson_compiles_with_the_toolkit_of_its_system() -> None:
    answer = reviewed(JETSON.format("5.3;6.2;7.2"), "Jetson Xavier NX")
    assert answer.questions == ()
    assert answer.settled == ("what is compiled for sm_53, sm_62, sm_72 runs on the card",)
    assert (
        reviewed(JETSON.format("7.2;8.7"), "Jetson Xavier NX").questions != ()
    )  # only the newer of its systems knows 8.7


def test_a_project_that_was_not_read_is_named() -> None:
    docker = "FROM python:3.11-slim\nCOPY pyproject.toml ./\nRUN pip install '.[serve]'\n"
    assert "what the project in this folder asks for" in reviewed(docker, "RTX 3060", "Dockerfile").questions[0]


MATRIX = """
on: [push]
jobs:
  test:
    runs-on: ubuntu-latest
    strategy:
      matrix:
        {}
    steps:
      - run: pip install torch==2.5.1 --index-url https://download.pytorch.org/whl/${{{{ matrix.variant }}}}
"""
ROWS = "include: [{variant: cpu, python: '3.10'}, {variant: cu121, python: '3.11'}]"


@pytest.mark.parametrize("matrix", ["variant: [cpu, cu121]", ROWS], ids=["values", "rows"])
def test_each_entry_of_a_matrix_is_a_way_of_its_own(matrix: str) -> None:
    assert verdict(MATRIX.format(matrix), "RTX 3060", ".github/workflows/a.yml") == "accepted"
    wrong = reviewed(MATRIX.format(matrix), "RTX 5070", ".github/workflows/a.yml").remarks
    assert [each.found[:17] for each in wrong if each.state.value == "FAIL"] == ["torch 2.5.1+cu121"]


def test_the_steps_of_an_action_are_read() -> None:
    step = f"    - run: pip install torch==2.5.1 --index-url {WHL}/cu121\n      shell: bash\n"
    action = f"runs:\n  using: composite\n  steps:\n{step}"
    assert verdict(action, "RTX 5070", ".github/actions/x/action.yml") == "refused"


RUNTIME = f"""FROM nvidia/cuda:11.8.0-cudnn8-runtime-ubuntu22.04
RUN apt-get update && apt-get install -y python3.10 python3-pip
RUN pip install torch --index-url {WHL}/cu128 && pip install -e . --no-deps
"""
STAGED = f"""FROM debian:bookworm AS build
RUN python -m venv /opt/venv && /opt/venv/bin/pip install torch==2.0.1 --index-url {WHL}/cu118
FROM debian:bookworm
COPY --from=build /opt/venv /opt/venv
RUN /opt/venv/bin/pip install accelerate
"""


def test_a_ready_made_torch_is_not_judged_by_the_cuda_of_its_image() -> None:
    assert verdict(RUNTIME, "RTX 5090", "Dockerfile") == "accepted"


def test_an_environment_that_a_stage_copies_comes_with_its_torch() -> None:
    assert reviewed(STAGED, "RTX 3060", "Dockerfile").torch == "2.0.1"
    assert verdict(STAGED, "RTX 5090", "Dockerfile") == "refused"


def test_a_misspelt_instruction_is_wrong() -> None:
    found = reviewed("FROM pytorch/pytorch:2.8.0-cuda12.8-cudnn9-runtime\nWOKRDIR /app\n", "RTX 5090", "Dockerfile")
    assert [(each.id, each.corrected) for each in found.remarks] == [("instruction-unknown", "WORKDIR /app")]


@pytest.mark.parametrize("line", ["pip install -r more.txt", "uv sync --extra gpu"])
def test_one_thing_is_not_known(line: str) -> None:
    assert len(reviewed(f"FROM python:3.11\nRUN {line}\n", "RTX 3060", "Dockerfile").questions) == 1


@pytest.mark.parametrize("image", ["python:3", "python:slim", "python", "docker.io/library/python:3-slim-bookworm"])
def test_an_image_without_a_number_has_the_newest_python(image: str) -> None:
    old = reviewed(f"FROM {image}\nRUN pip install torch==2.0.1\n", "GTX 1080 Ti", "Dockerfile")
    assert any(str(newest_python()) in each.found for each in old.remarks)
    assert not reviewed(f"FROM {image}\nRUN pip install torch\n", "RTX 3060", "Dockerfile").remarks


def test_three_x_of_an_action_is_the_newest_python() -> None:
    steps = (
        "      - uses: actions/setup-python@v5\n        with: {python-version: '3.x'}\n"
        "      - run: pip install torch==2.0.1\n"
    )
    text = f"on: push\njobs:\n  t:\n    runs-on: ubuntu-latest\n    steps:\n{steps}"
    assert any(str(newest_python()) in each.found for each in reviewed(text, "GTX 1080 Ti", "ci.yml").remarks)


@pytest.mark.parametrize(
    "line",
    [
        "winget install -e --id Python.Python.3.14",
        "choco install python --version=3.14.1 -y",
        "choco install python314",
    ],
)
def test_the_python_that_windows_was_given_takes_the_wheels(line: str) -> None:
    text = f"{line}\npip install torch==2.6.0 --index-url https://download.pytorch.org/whl/cu124\n"
    assert any("Python 3.14" in each.found for each in reviewed(text, "RTX 3060", "a.ps1").remarks)
    assert not reviewed(text.replace("3.14", "3.12").replace("314", "312"), "RTX 3060", "a.ps1").remarks


@pytest.mark.parametrize(
    "line", ["sudo apt install -y nvidia-driver-470-server", "sudo sh ./NVIDIA-Linux-x86_64-470.256.02.run --silent"]
)
def test_the_driver_that_a_script_installs_has_to_run_its_torch(line: str) -> None:
    text = f"{line}\npip install torch==2.9.1\n"
    assert "470.256.02" in reviewed(text, "RTX 3060").remarks[0].found
    assert reviewed(text, "RTX 5090").remarks[0].line == 1
    assert verdict(text, "RTX 3060", driver="580.65.06") == "accepted"
    assert verdict(text.replace("470.256.02", "580.65.06").replace("470", "580"), "RTX 3060") == "accepted"


@pytest.mark.parametrize(
    "line",
    [
        "su - me -c 'pip install torch==2.8.0'", "sudo bash -lc 'pip install torch==2.8.0'", "poetry add torch@2.8.0",
        "eval 'pip install torch==2.8.0'", "uv run --with torch==2.8.0 x.py",
        "docker exec -w /a c pip install torch==2.8.0",
        "docker run --gpus all -v a:b i bash -c 'pip install torch==2.8.0'",
        "ssh host 'pip install torch==2.8.0'", "sbatch --wrap 'pip install torch==2.8.0'",
    ],
)  # fmt: skip
def test_an_install_inside_another_command_is_read(line: str) -> None:
    assert verdict(f"pip install torch==2.6.0\n{line}\n", "GTX 1080 Ti") == "refused"


@pytest.mark.parametrize(
    "line",
    [
        "pipx install torch==2.8.0", "ssh host pip install torch==2.8.0",
        "python -c \"import os; os.system('pip install torch==2.8.0')\"",
    ],
)  # fmt: skip
def test_an_install_that_was_not_read_is_not_accepted(line: str) -> None:
    assert verdict(f"pip install torch==2.6.0\n{line}\n", "GTX 1080 Ti") == "open"
    assert verdict("pip install torch==2.6.0\necho 'or: pip install torch==2.8.0'\n", "GTX 1080 Ti") == "accepted"


def test_a_path_that_begins_with_a_variable_ends_with_its_word() -> None:
    """The grammar of PowerShell took the next lines for a part of it, so nobody saw which Python is taken."""
    clone = "git clone -b v2.7.1 --recursive https://github.com/pytorch/pytorch $Root\\pytorch"
    text = f"{clone}\ncd $Root/pytorch\npy -3.8 -m venv v\n"
    found = reviewed(f"{text}Copy-Item $a\\* $b\\lib\npython setup.py install\n", "K40c", "a.ps1").remarks
    assert any("Python 3.8" in each.found for each in found)


@pytest.mark.parametrize(("file", "name"), [("powershell", "a.ps1"), ("shell", "a.sh"), ("batch", "a.bat")])
def test_no_line_swallows_the_one_behind_it(file: str, name: str) -> None:
    """What people write in scripts, one thing at a time: the install below it is always seen."""
    lines = (DATA / "script-lines" / f"{file}.txt").read_text(encoding="utf-8").strip("\n").split("\n\n")
    install = "pip install torch==2.8.0\n"
    lost = [each for each in lines if verdict(f"{each}\n{install}", "GTX 1080 Ti", name) != "refused"]
    assert len(lines) > 50 and not lost


def test_a_command_in_torch_command_is_run_by_the_program_behind_it() -> None:
    """As people with AUTOMATIC1111 choose their torch, with the Python that they name."""
    text = "set PYTHON=C:\\Python{}\\python.exe\nset TORCH_COMMAND=pip install torch==2.1.2{}\ncall webui.bat\n"
    line = " --extra-index-url https://download.pytorch.org/whl/cu121"
    assert verdict(text.format("310", line), "RTX 5070", "webui-user.bat") == "refused"
    assert any("Python 3.12" in each.found for each in reviewed(text.format("312", line), "3060", "a.bat").remarks)


@pytest.mark.parametrize(
    "line",
    ["sudo apt-get install -y cuda-toolkit-12-6", "sudo sh cuda_12.6.0_560.28.03_linux.run --silent --toolkit",
     "choco install cuda --version=12.6.0 -y"],
)  # fmt: skip
def test_the_toolkit_that_a_script_installs_compiles(line: str) -> None:
    build = 'export TORCH_CUDA_ARCH_LIST="12.0a"\npip install --no-build-isolation git+https://github.com/x/y_cuda@v1\n'
    found = reviewed(f"{line}\npip install torch==2.8.0\n{build}", "RTX 5070").remarks
    assert any("12.6 cannot compile" in each.found for each in found)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("pip install llama-cpp-python", True),
        ("pip install 'llama-cpp-python[cuda] @ git+https://github.com/abetlen/llama-cpp-python.git@main'", True),
        ("pip install git+https://github.com/abetlen/llama-cpp-python.git", True),
        ("CMAKE_ARGS=-DGGML_CUDA=on pip install llama-cpp-python", False),
        ("CMAKE_ARGS=$ARGS pip install llama-cpp-python", False),
        ("pip install llama-cpp-python -C cmake.args=-DGGML_CUDA=on", False),
        ("pip install llama-cpp-python --extra-index-url https://abetlen.github.io/llama-cpp-python/whl/cu124", False),
        ("conda install -c conda-forge llama-cpp-python", False),
    ],
)
def test_a_program_that_is_built_without_cuda(line: str, said: bool) -> None:
    answer = reviewed(f"{MODULE}{line}\n", "RTX 3060")
    assert ("program-without-cuda" in {remark.id for remark in answer.remarks}) is said
    assert not said or (not answer.answered and "meant for the CPU" in answer.questions[0] and not answer.refused)


CODE = "arch=compute_89,code=sm_89"
CUDA_IMAGE = "FROM nvidia/cuda:12.2.0-devel-ubuntu22.04\n"


@pytest.mark.parametrize(
    ("name", "script"),
    [
        ("Makefile", f"N := nvcc -O3\\\n\t-lineinfo\\\n\t-gencode {CODE}\nk: k.cu\n\t$N -o $@ $@.cu\n"),
        ("Makefile", f"F = -O3 \\\n  -gencode \\\n  {CODE}\nall:\n\tnvcc $(F) a.cu\n"),
        ("Makefile", f"F += -O3\nF += \\\n  -gencode {CODE}\nall:\n\tnvcc $(F) a.cu\n"),
        ("Makefile", f"define F\n-gencode \\\n{CODE}\nendef\nall: ; nvcc $(F) a.cu\n"),
        ("Makefile", f"all: F += -gencode {CODE}\nall:\n\tnvcc $(F) a.cu\nF=-O3\n"),
        ("Makefile", f"ifdef X\n\tF = -gencode {CODE}\nendif\nall:\n\tnvcc $(G) a.cu\nG = $(F)\n"),
        ("a.sh", f'F="-O3 \\\n -gencode \\\n {CODE}"\nnvcc $F a.cu\n'),
        ("a.bat", f"set F=-O3 ^\n -gencode ^\n {CODE}\nnvcc %F% a.cu\n"),
        ("a.ps1", f'nvcc `\n -gencode `\n "{CODE}" a.cu\n'),
        ("Dockerfile", f"# escape=`\n{CUDA_IMAGE}RUN nvcc `\n -gencode `\n # why\n {CODE} a.cu\n"),
        ("Dockerfile", f'{CUDA_IMAGE}ENV A=1 \\\n F="-gencode \\\n {CODE}"\nRUN nvcc \\\n\n # why\n  $F a.cu\n'),
        ("Dockerfile", f'{CUDA_IMAGE}SHELL ["pwsh", "-c"]\nRUN nvcc \\\n -gencode \\\n "{CODE}" a.cu\n'),
    ],
)
def test_nothing_behind_a_line_that_goes_on_is_lost(name: str, script: str) -> None:
    assert verdict(script, "RTX 3090", name) == "refused"
    assert verdict(script, "RTX 4090", name) == "accepted"


@pytest.mark.parametrize(
    "script",
    [
        "ifdef X\nA = sm_86\nelse\nA = sm_89\nendif\nall:\n\tnvcc -gencode arch=compute_86,code=$(A) a.cu\n",
        "A := sm_89\nifdef X\nA := sm_86\nendif\nall:\n\tnvcc -gencode arch=compute_86,code=$(A) a.cu\n",
        "F != nvidia-smi\nall:\n\tnvcc -arch=$(F) a.cu\n",
        "FLAGS = -arch=sm_86\n$(foreach s,$(S),$(eval FLAGS += -arch=sm_$s))\nall:\n\tnvcc $(FLAGS) a.cu\n",
    ],
)
def test_what_make_finds_out_itself_is_not_known(script: str) -> None:
    assert verdict(script, "RTX 3090", "Makefile") == "open"


EXTENSION = """\
import os
from torch.utils.cpp_extension import CUDAExtension
{}
setup(ext_modules=[CUDAExtension("a", ["a.cu"], extra_compile_args={{"nvcc": [{}]}})])
"""


@pytest.mark.parametrize(
    ("before", "flags", "card", "expected"),
    [
        ("os.environ['TORCH_CUDA_ARCH_LIST'] = '8.6'", "'-O3'", "RTX 4090", "accepted"),
        ("os.environ['TORCH_CUDA_ARCH_LIST'] = '8.6'", "'-O3'", "H100", "refused"),
        ("os.environ['TORCH_CUDA_ARCH_LIST'] = '8.6+PTX'", "", "H100", "accepted"),
        ("os.environ.setdefault('TORCH_CUDA_ARCH_LIST', '8.6')", "", "H100", "refused"),
        ("os.environ['TORCH_CUDA_ARCH_LIST'] = found", "'-O3'", "H100", "open"),
        # torch compiles for the cards that are there, and nobody said which: nvcc's own default does not count.
        ("", "'-O3'", "H100", "open"),
        ("", "", "H100", "open"),
        ("", "'-gencode=arch=compute_90,code=sm_90'", "H100", "accepted"),
    ],
)
def test_an_extension_is_compiled_for_torchs_list(before: str, flags: str, card: str, expected: str) -> None:
    assert verdict(EXTENSION.format(before, flags), card, "setup.py") == expected
    bare = EXTENSION.replace(', extra_compile_args={{"nvcc": [{}]}}', "").format(before)
    if not flags:
        assert verdict(bare, card, "setup.py") == expected


def test_accepted_comes_from_an_answered_question_only() -> None:
    for script in ("pip install -e .\n", "git clone x && cd x && make\n", "pip install ninja numpy\n"):
        assert verdict(script, "RTX 3090") == "open"
    answer = reviewed("nvcc -arch=sm_86 a.cu\n", "RTX 3090")
    assert answer.answered and answer.settled


WORLDS = """\
on: push
jobs:
  a:
    runs-on: ${{{{ matrix.os }}}}
    strategy:
      matrix:
        include:
{}
    steps:
      - uses: actions/setup-python@v5
        with:
          python-version: ${{{{ matrix.py }}}}
      - if: matrix.rocm != ''
        run: pip install torch==${{{{ matrix.torch }}}} --index-url https://download.pytorch.org/whl/rocm6.2
      - if: matrix.rocm == ''
        run: pip install torch==${{{{ matrix.torch }}}} -i https://download.pytorch.org/whl/${{{{ matrix.line }}}}
      - env:
          TORCH_CUDA_ARCH_LIST: ${{{{ matrix.archs }}}}
        run: |
          export TORCH_CUDA_ARCH_LIST='${{{{ matrix.archs }}}}'
          python setup.py bdist_wheel
"""
WORLD = "          - {{os: ubuntu-22.04, py: '{}', torch: '{}', line: {}, rocm: '{}', archs: '{}'}}"


def worlds(*rows: str) -> Reviewed:
    return reviewed(WORLDS.format("\n".join(rows)), "RTX 3090", ".github/workflows/a.yml")


@pytest.mark.parametrize("count", [1, 20, 120])
def test_each_row_of_a_matrix_is_a_world_of_its_own(count: int) -> None:
    pairs = [("3.8", "2.0.1", "cu117"), ("3.12", "2.5.1", "cu121"), ("3.9", "2.5.1", "cu124")] * count
    rows = [WORLD.format(*pair, "", f"8.6;{7 + index % 2}.0") for index, pair in enumerate(pairs)]
    rows.append(WORLD.format("3.11", "2.5.1", "''", "6.2", ""))
    assert not [each.found for each in worlds(*rows).remarks if each.state is State.FAIL]
    wrong = worlds(WORLD.format("3.8", "2.5.1", "cu121", "", "8.6"), *rows)
    assert [(each.id, each.line) for each in wrong.remarks if each.state is State.FAIL] == [("python-not-supported", 8)]


def test_a_condition_with_an_alternative_is_open() -> None:
    text = WORLDS.format(WORLD.format("3.8", "2.5.1", "cu121", "", "8.6")).replace(
        "if: matrix.rocm == ''", "if: matrix.py == '3.8' || matrix.rocm == 'x' && matrix.rocm != ''"
    )
    found = reviewed(text, "RTX 3090", ".github/workflows/a.yml").remarks
    assert "python-not-supported" in {each.id for each in found}


def test_what_a_workflow_is_given_from_outside_is_no_value() -> None:
    text = WORLDS.format("").replace("matrix.archs", "inputs.archs")
    assert not [each.found for each in reviewed(text, "RTX 3090", ".github/workflows/a.yml").remarks if each.state is
                State.FAIL]  # fmt: skip


@pytest.mark.parametrize(
    ("cudnn", "system", "expected"),
    [("8.9.7.29", "linux", "refused"), ("9.1.0.70", "linux", "accepted"), ("8.9.7.29", "windows", "accepted")],
)
def test_a_cudnn_beside_the_one_that_torch_asks_for(cudnn: str, system: str, expected: str) -> None:
    lines = f"--index-url {WHL}/cu124\ntorch==2.6.0\nnvidia-cudnn-cu12=={cudnn}\n"
    assert verdict(lines, "A100", "requirements.txt", system=system) == expected


@pytest.mark.parametrize(
    ("line", "card", "expected"),
    [
        ("xformers==0.0.31", "GTX 1080 Ti", "refused"),
        ("xformers==0.0.31", "RTX 3090", "accepted"),
        ("xformers==0.0.31 --no-binary xformers", "GTX 1080 Ti", "other"),
    ],
)
def test_a_release_whose_wheel_has_no_code_for_the_card(line: str, card: str, expected: str) -> None:
    """verify, extension find and plan --with refused it, and review accepted it."""
    answer = reviewed(f"pip install torch==2.7.1 {line} --index-url {WHL}/cu126\n", card, system="linux")
    assert ("wheel-without-kernels" in {each.id for each in answer.remarks}) is (expected == "refused")
    assert expected == "other" or answer.refused is (expected == "refused")


def _notebook(*cells: str) -> str:
    return json.dumps(
        {"cells": [{"cell_type": "code", "source": each.splitlines(keepends=True)} for each in cells]}, indent=1
    )


@pytest.mark.parametrize(
    "cell",
    [
        'import os\nos.system("pip install torch==2.0.1")',
        'import subprocess, sys\nsubprocess.check_call([sys.executable, "-m", "pip", "install", "torch==2.0.1"])',
        'own = "2.0.1"\ntry:\n  %shell sudo apt install x\n  os.system(f"pip install torch=={own}")\nfinally:\n  pass',
        "%%capture\nif True:\n    !pip install \\\n      torch==2.0.1",
        "%matplotlib inline\n%shell pip install torch==2.0.1",
        "what is this?\n  !pip install torch==2.0.1",
        "%%bash -e\npip install torch==2.0.1",
    ],
)
def test_a_cell_is_read_as_code_with_commands(cell: str) -> None:
    answer = reviewed(_notebook("x = 1", cell), "RTX 5090", "a.ipynb")
    assert answer.refused and answer.torch == "2.0.1"
    assert any("torch" in each.text for each in answer.remarks if "2.0.1" in each.found)


def test_what_a_cell_writes_to_a_file_is_not_run() -> None:
    text = _notebook("%%writefile a.py\nimport os\nos.system('pip install torch==2.0.1')", "!pip install torch==2.8.0")
    assert reviewed(text, "RTX 5090", "a.ipynb").torch == "2.8.0"


def test_the_cells_share_their_names_and_their_order() -> None:
    last = "os.system(f'pip install torch=={number}')"
    text = _notebook("number = '2.0.1'", "os.system('pip install torch==2.8.0')", last)
    assert reviewed(text, "RTX 5090", "a.ipynb").refused


TCNN = "pip install --no-build-isolation git+https://github.com/NVlabs/tiny-cuda-nn/#subdirectory=bindings/torch\n"
TORCH_231 = "export CUDA_HOME=/usr/local/cuda-12.1\npip install torch==2.3.1\n"


@pytest.mark.parametrize(
    ("text", "card", "refused"),
    [
        (f"{TORCH_231}export TCNN_CUDA_ARCHITECTURES=86\n{TCNN}", "RTX 2080", True),
        (f"{TORCH_231}export TCNN_CUDA_ARCHITECTURES=75,86\n{TCNN}", "RTX 2080", False),
        (f"{TORCH_231}TCNN_CUDA_ARCHITECTURES=${{ARCH:-86}} python setup.py install\n", "RTX 2080", True),
        (
            f'{TORCH_231}NVTE_CUDA_ARCHS="80;90" pip install --no-build-isolation transformer-engine==1.11\n',
            "V100",
            True,
        ),
        (
            f"{TORCH_231}FLASH_ATTN_CUDA_ARCHS=90 pip install --no-build-isolation --no-binary :all: flash-attn\n",
            "RTX 3090",
            True,
        ),
        (
            "FROM pytorch/pytorch:2.3.1-cuda12.1-cudnn8-devel\nENV TCNN_CUDA_ARCHITECTURES=86\nRUN " + TCNN,
            "RTX 2080",
            True,
        ),
    ],
)
def test_a_project_with_a_list_of_its_own_is_judged_by_it(text: str, card: str, refused: bool) -> None:
    answer = review_script(
        read(text, name="Dockerfile" if text.startswith("FROM") else "a.sh"), question_from_options((card,))
    )
    assert answer.refused == refused and answer.answered != refused
