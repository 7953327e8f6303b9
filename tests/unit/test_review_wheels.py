"""`rekindle review` of scripts that install a ready-made torch: is there such a wheel, and does it stay?"""

from __future__ import annotations

from pathlib import Path

import pytest

from rekindle.model.card import Capability
from rekindle.review.document import read
from rekindle.review.question import Asked, question_from_options
from rekindle.review.remark import Remark
from rekindle.review.review import Reviewed, review_script
from support.command import rekindle_command

INDEX = "--index-url https://download.pytorch.org/whl"
RULES = frozenset(
    {
        "no-such-index",
        "python-not-supported",
        "musl-no-wheel",
        "torch-replaced",
        "torch-replaced-breaks",
        "torch-replaced-not-for-the-card",
        "yaml-number",
    }
)


def remarks(text: str, name: str = "Dockerfile", gpu: str | None = None) -> list[Remark]:
    answer = review_script(read(text, name=name), Asked(gpus=(Capability.parse(gpu),) if gpu else ()))
    return [remark for remark in answer.remarks if remark.id in RULES]


def found(text: str, name: str = "Dockerfile", gpu: str | None = None) -> list[tuple[int, str]]:
    return [(remark.line, remark.id) for remark in remarks(text, name, gpu)]


# --- the Python ----------------------------------------------------------------------------------------------------


def test_the_python_of_the_base_image_has_no_such_wheel() -> None:
    text = f"FROM python:3.13-slim\nRUN pip install torch==2.3.1+cu118 {INDEX}/cu118\n"
    (remark,) = remarks(text)
    assert (remark.line, remark.id) == (1, "python-not-supported")
    assert "for Python 3.8 to 3.12" in remark.why and "torch 2.5.0 is the first" in remark.why
    assert found(text.replace("3.13", "3.12")) == []
    assert found(text.replace("python:3.13-slim", "ubuntu:22.04")) == []


@pytest.mark.parametrize(
    "image",
    ["python:3.13", "docker.io/library/python:3.13.2-bookworm", "ghcr.io/astral-sh/uv:0.8-python3.13-bookworm-slim"],
)
def test_images_that_bring_a_python(image: str) -> None:
    text = f"ARG BASE={image}\nFROM ${{BASE}} AS build\nRUN pip install torch==2.3.1\n"
    assert found(text) == [(2, "python-not-supported")]


def test_an_environment_of_its_own_counts_for_more_than_the_image() -> None:
    text = "FROM python:3.13\nRUN uv venv --python 3.11 /opt/v\nRUN uv pip install torch==2.3.1\n"
    assert found(text) == []


def test_an_image_of_another_stage_does_not_count() -> None:
    text = "FROM python:3.13 AS a\nRUN pip install six\nFROM python:3.12\nRUN pip install torch==2.3.1\n"
    assert found(text) == []


WORKFLOW = """\
on: [push]
jobs:
  build:
    runs-on: ubuntu-22.04
    strategy:
      matrix:
        python: [{pythons}]
    steps:
      - uses: actions/setup-python@v5
        with:
          python-version: ${{{{ matrix.python }}}}
      - run: pip install torch==2.8.0 --index-url https://download.pytorch.org/whl/cu126
"""


def test_each_python_of_a_matrix_is_looked_at() -> None:
    (remark,) = remarks(WORKFLOW.format(pythons='"3.8", "3.9", "3.10"'), "w.yml")
    assert (remark.line, remark.id) == (7, "python-not-supported")
    assert "Python 3.8" in remark.found and "torch 2.4.1 is the last" in remark.why
    assert found(WORKFLOW.format(pythons='"3.9", "3.10"'), "w.yml") == []
    without = WORKFLOW.format(pythons='"3.8", "3.9"') + "        if: matrix.python != '3.8'\n"
    assert found(without, "w.yml") == []


def test_a_number_of_yaml_loses_its_zero() -> None:
    (remark,) = remarks(WORKFLOW.format(pythons="3.9, 3.10, 3.11"), "w.yml")
    assert (remark.line, remark.id) == (7, "yaml-number")
    assert "3.1" in remark.found
    assert remark.corrected == '        python: [3.9, "3.10", 3.11]'
    direct = WORKFLOW.format(pythons='"3.9"').replace("${{ matrix.python }}", "3.10")
    assert found(direct, "w.yml") == [(11, "yaml-number")]
    listed = WORKFLOW.format(pythons="").replace("[]", "\n          - 3.10\n          - '3.10'")
    assert found(listed, "w.yml") == [(8, "yaml-number")]
    assert found(WORKFLOW.format(pythons="3.9, 3.11") + "    timeout-minutes: 3.10\n", "w.yml") == []


# --- the C library -------------------------------------------------------------------------------------------------


def test_no_wheel_is_made_for_musl() -> None:
    text = f"FROM python:3.12-alpine\nRUN pip install torch==2.7.1 {INDEX}/cu126\n"
    (remark,) = remarks(text)
    assert (remark.line, remark.id, remark.corrected) == (1, "musl-no-wheel", "FROM python:3.12-slim")
    assert found(text.replace("python:3.12-alpine", "alpine:3.20")) == [(1, "musl-no-wheel")]
    assert found(text.replace("-alpine", "-slim")) == []
    assert found("FROM python:3.12-alpine\nRUN pip install requests\n") == []
    assert found("FROM alpine AS a\nRUN pip install six\nFROM python:3.12-slim\nRUN pip install torch==2.7.1\n") == []


# --- a torch that does not stay ------------------------------------------------------------------------------------

PINNED = f"FROM python:3.12-slim\nRUN pip install torch==2.8.0 {INDEX}/cu126\n"


@pytest.mark.parametrize("name", ["xformers", "torchvision", "torchaudio", "vllm", "-U torch", "-U torchvision"])
def test_a_later_command_takes_another_torch(name: str) -> None:
    text = f"{PINNED}RUN pip install {name}\n"
    (remark,) = remarks(text, gpu="6.1")
    assert (remark.line, remark.id) == (3, "torch-replaced-not-for-the-card")
    assert "2.8.0+cu126 of line 2" in remark.found and "no code for a GPU of capability 6.1" in remark.why
    assert found(text, gpu="12.0") == [(3, "torch-replaced")]
    assert found(text) == [(3, "torch-replaced")]


def test_a_torch_that_does_not_serve_the_card_is_not_to_be_kept() -> None:
    """For an RTX 5090 the xformers of the image's torch 2.1 was proposed, which leaves a torch without its code."""
    text = "FROM pytorch/pytorch:2.1.0-cuda12.1-cudnn8-runtime\nRUN pip install xformers\n"
    (remark,) = remarks(text, gpu="12.0")
    assert "Instead, pin what it takes (torch==" in remark.why and "0.0.22" not in remark.why
    (remark,) = remarks(text, gpu="8.6")
    assert "install xformers==0.0.22.post7" in remark.why


def test_the_pair_is_named() -> None:
    (remark,) = remarks(f"{PINNED}RUN pip install torchvision\n")
    assert "torchvision==0.23.0 in the command of line 2" in remark.why


@pytest.mark.parametrize(
    "line",
    [
        f"pip install xformers {INDEX}/cu126",
        f"pip install xformers --extra-{INDEX[2:]}/cu126",
        "pip install xformers --no-deps",
        "pip install -c pins.txt xformers",
        "pip install torch==2.8.0 xformers",
        "pip install torchvision==0.23.0",
        "pip install xformers==0.0.32.post2",
        "pip install transformers accelerate",
        "pip install -U accelerate",
        "pip install torch",
        "/opt/other/bin/pip install xformers",
        "PIP_CONSTRAINT=pins.txt pip install xformers",
        "python -m venv /v && . /v/bin/activate && pip install xformers",
    ],
)
def test_and_these_do_not(line: str) -> None:
    assert found(f"{PINNED}RUN {line}\n", gpu="6.1") == []


def test_what_is_there_already_stays() -> None:
    both = PINNED.replace("torch==2.8.0", "torch==2.8.0 torchvision==0.23.0")
    assert found(f"{both}RUN pip install torchvision\n") == []
    assert found(f"{both}RUN pip install -U torchvision\n") == [(3, "torch-replaced")]


def test_another_stage_has_another_torch() -> None:
    assert found(f"{PINNED}FROM python:3.12\nRUN pip install xformers\n") == []


def test_a_release_that_was_made_for_another_torch() -> None:
    assert found(f"{PINNED}RUN pip install xformers==0.0.30\n") == [(3, "torch-replaced")]


def test_on_windows_the_ordinary_index_has_no_cuda() -> None:
    text = f"pip install torch==2.7.1 {INDEX}/cu126\npip install torchvision\n"
    (remark,) = remarks(text, "a.bat", "6.1")
    assert remark.id == "torch-replaced-not-for-the-card" and "no CUDA on Windows" in remark.why


# --- what never runs on the card -----------------------------------------------------------------------------------


def ids(text: str, name: str = "build.sh", gpu: str = "6.1") -> dict[str, int]:
    answer = review_script(read(text, name=name), Asked(gpus=(Capability.parse(gpu),)))
    return {remark.id: remark.line for remark in answer.remarks}


@pytest.mark.parametrize(
    ("line", "served"),
    [
        ("pip install flash-attn --no-build-isolation", "8.0"),
        ("pip install sageattention", "7.5"),
        ("pip install nunchaku", "7.5"),
        ("pip install vllm==0.10.0", "7.0"),
        ("pip install autoawq-kernels", "7.5"),
        ("git clone https://github.com/Dao-AILab/flash-attention; cd flash-attention; python setup.py install", "8.0"),
    ],
)
def test_a_package_whose_kernels_begin_above_the_card(line: str, served: str) -> None:
    assert ids(f"set -e\n{line}\n").get("kernels-not-for-the-card") == 2
    assert "kernels-not-for-the-card" not in ids(f"set -e\n{line}\n", gpu=served)


def test_an_older_release_may_have_begun_earlier() -> None:
    for pin in ("flash-attn==1.0.9", "'flash-attn<2'"):
        assert "kernels-not-for-the-card" not in ids(f"pip install {pin} --no-build-isolation\n", gpu="7.5")
    assert "kernels-not-for-the-card" in ids("pip install 'flash-attn>=2,<3'\n", gpu="7.5")


BUILD = """\
set -e
export CUDA_HOME=/usr/local/cuda-11.8 MAX_JOBS=4 TORCH_CUDA_ARCH_LIST=3.5
git clone --recursive --branch v2.9.1 https://github.com/pytorch/pytorch
cd pytorch
python setup.py bdist_wheel
"""


def test_no_toolkit_serves_the_release_and_the_card() -> None:
    answer = review_script(read(BUILD, name="build.sh"), Asked(gpus=(Capability.parse("3.5"),)))
    (remark,) = (each for each in answer.remarks if each.id == "no-toolkit-for-both")
    assert remark.line == 2 and "ends with 11.8" in remark.found and "torch 2.8.0 is the last" in remark.why
    assert "toolkit-too-old-for-torch" not in {each.id for each in answer.remarks}, "a newer CUDA would not help"
    assert "no-toolkit-for-both" not in ids(BUILD.replace("2.9.1", "2.8.0"), gpu="3.5")
    assert "toolkit-too-old-for-torch" in ids(BUILD.replace("LIST=3.5", "LIST=6.1"), gpu="6.1")
    assert ids(BUILD.replace("CUDA_HOME=/usr/local/cuda-11.8 ", ""), gpu="3.5")["no-toolkit-for-both"] == 3


def test_an_older_tag_of_its_repository_counts_as_older() -> None:
    lines = "git clone -b v1.0.9 https://github.com/Dao-AILab/flash-attention\ncd flash-attention\n"
    assert "kernels-not-for-the-card" not in ids(f"{lines}python setup.py install\n", gpu="7.5")
    newer = lines.replace("v1.0.9", "v2.8.3")
    assert ids(f"{newer}python setup.py install\n", gpu="7.5")["kernels-not-for-the-card"] == 3
    assert "kernels-not-for-the-card" not in ids(f"{newer}GPU_ARCHS=gfx942 python setup.py install\n", gpu="7.5")


def test_the_newest_torch_of_the_ordinary_index_leaves_older_cards_out() -> None:
    text = "FROM python:3.12-slim\nRUN pip install torch\n"
    assert ids(text, "Dockerfile")["wheel-not-for-the-card"] == 2
    assert "wheel-not-for-the-card" not in ids(text, "Dockerfile", gpu="12.0")
    for other in ("torch==2.7.1", "torch -r pins.txt", "torch -c pins.txt", f"torch {INDEX}/cu126"):
        assert "wheel-not-for-the-card" not in ids(text.replace("torch", other), "Dockerfile")
    base = text.replace("python:3.12-slim", "pytorch/pytorch:2.7.1-cuda12.6-cudnn9-devel")
    assert "wheel-not-for-the-card" not in ids(base, "Dockerfile"), "the torch of the image stays"


# --- what people's scripts had ---------------------------------------------------------------------------------------


def reviewed(text: str, name: str, gpu: str = "", driver: str | None = None, system: str | None = None) -> Reviewed:
    asked = question_from_options([gpu], driver=driver, system=system) if gpu else Asked()
    return review_script(read(text, name=name), asked)


def said(answer: Reviewed) -> dict[str, str]:
    return {remark.id: f"{remark.found} {remark.why}" for remark in answer.remarks}


def test_a_lost_and() -> None:
    text = "FROM pytorch/pytorch:1.9.0-cuda11.1-cudnn8-devel\nRUN pip install pandas \\\n    pip install seaborn\n"
    found = said(reviewed(text, "Dockerfile"))
    assert set(found) == {"lost-and"} and "&& is missing" in found["lost-and"]


@pytest.mark.parametrize(("name", "instead"), [("sklearn", "scikit-learn"), ("pytorch", "torch")])
def test_dead_names(name: str, instead: str) -> None:
    answer = reviewed(f"pip install {name}\n", "a.sh")
    assert f"ask for {instead}" in said(answer)["dead-name"]
    assert answer.remarks[0].corrected == f"pip install {instead}"
    assert "dead-name" not in said(reviewed(f"conda install {name}\n", "a.sh"))


def test_what_stands_behind_a_misspelt_option_is_read_as_it_was_meant() -> None:
    answer = reviewed(f"pip install torch --inde-url {INDEX.split()[1]}/cu118\n", "a.sh", "RTX 3090", "550.54.14")
    assert set(said(answer)) == {"option-misspelt"} and answer.questions == ()


@pytest.mark.parametrize(
    ("torch", "before", "wrong"),
    [
        ("2.2.0-cuda12.1-cudnn8", "RUN conda install -y nvidia/label/cuda-12.1.0::cuda-toolkit\n", "image-no-compiler"),
        ("2.2.0-cuda12.1-cudnn8", "RUN conda install -y -c conda-forge cuda-nvcc\n", None),
        ("2.2.0-cuda12.1-cudnn8", "RUN apt-get install -y g++ && conda install -y nvidia::cuda-toolkit\n", None),
        ("2.2.0-cuda12.1-cudnn8", "", "image-runtime"),
        ("2.6.0-cuda12.4-cudnn9", "RUN conda install -y nvidia/label/cuda-12.4.0::cuda-toolkit\n", None),
    ],
)
def test_a_runtime_image_has_no_compiler(torch: str, before: str, wrong: str | None) -> None:
    text = f"FROM pytorch/pytorch:{torch}-runtime\n{before}RUN pip install flash-attn --no-build-isolation\n"
    found = {*said(reviewed(text, "Dockerfile", "A100"))} & {"image-no-compiler", "image-runtime"}
    assert found == ({wrong} if wrong else set())


DETECTRON = "detectron2 -f https://dl.fbaipublicfiles.com/detectron2/wheels/cu113/torch1.{}/index.html"


def test_a_page_of_detectron2_that_there_is_not() -> None:
    assert "page-misspelt" in said(reviewed(f"pip install {DETECTRON.format(11)}\n", "a.sh"))
    assert "page-misspelt" not in said(reviewed(f"pip install {DETECTRON.format(10)}\n", "a.sh"))
    text = f"dependencies:\n  - python=3.9\n  - pip:\n    - {DETECTRON.format(11)}\n"
    assert {"page-misspelt", "list-option-behind"} <= {*said(reviewed(text, "environment.yml"))}


def test_pip_passes_over_an_index_behind_a_requirement() -> None:
    text = f"--extra-{INDEX[2:]}/cu118\ntorch==2.1.2 --index-url {INDEX.split()[1]}/cu121\n"
    answer = reviewed(text, "requirements.txt", "RTX 3090")
    assert answer.answered and [each.id for each in answer.remarks] == ["list-option-behind"]


def test_the_name_of_an_environment_may_be_any() -> None:
    text = "conda create -n your_env_name python=3.10\nconda activate your_env_name\npip install torch==2.5.1\n"
    assert "placeholder" not in said(reviewed(text, "a.sh"))


def test_torchvision_brings_the_newest_numpy() -> None:
    text = f"pip install torch==2.0.1 torchvision==0.15.2 {INDEX}/cu118\n"
    assert "numpy-two" in said(reviewed(text, "a.sh"))
    assert "numpy-two" not in said(reviewed(f'pip install "numpy<2"\n{text}', "a.sh"))
    assert "numpy-two" not in said(reviewed(f"pip install torch==2.7.1 torchvision==0.22.1 {INDEX}/cu118\n", "a.sh"))


def test_old_ptx_does_not_carry_a_newer_card() -> None:
    text = f"pip install torch==2.3.1+cu118 {INDEX}/cu118\n"
    assert reviewed(text, "a.bat", "RTX 5060 Ti", "576.02", "windows").refused


def test_the_driver_of_nvidias_monthly_image() -> None:
    text = "FROM nvcr.io/nvidia/pytorch:23.11-py3\n"
    answer = reviewed(text, "Dockerfile", "RTX 3090", "470.182.03")
    assert answer.refused and "is of CUDA 12.0 or newer" in said(answer)["wheel-not-for-the-card"]
    assert reviewed(text, "Dockerfile", "RTX 3090", "535.104.05").answered, "as the months before and after it"
    other = reviewed(text, "Dockerfile", "A100", "470.182.03")
    assert not other.refused and not other.answered
    assert reviewed(text, "Dockerfile", "RTX 5090", "580.65.06").refused
    assert reviewed(text.replace("23.11", "25.10"), "Dockerfile", "V100", "580.65.06").refused


def test_the_image_of_vllm_and_its_options() -> None:
    text = 'FROM vllm/vllm-openai:latest\nCMD ["--model", "x", "--dtype", "bfloat16"]\n'
    found = said(reviewed(text, "Dockerfile", "V100", "535.104.05"))
    assert "is the newest that does" in found["wheel-not-for-the-card"] and "half" in found["flag-not-for-the-card"]
    assert said(reviewed(text, "Dockerfile", "A100", "580.65.06")) == {}
    assert not reviewed(text.replace("latest", "v0.2.0"), "Dockerfile", "A100", "580.65.06").answered
    assert reviewed(text.replace("latest", "v0.10.1"), "Dockerfile", "A100", "580.65.06").answered
    run = "docker run --gpus all -v $PWD/.cache/hf:/root/.c --ipc=host vllm/vllm-openai:v0.9.2 --model a/b\n"
    assert "v0.9.2" in said(reviewed(run, "a.ps1", "P40"))["wheel-not-for-the-card"]


def test_the_toolkits_that_take_a_whole_list() -> None:
    text = 'export TORCH_CUDA_ARCH_LIST="3.5;8.0;8.9;9.0+PTX"\npython setup.py install\n'
    assert any("CUDA 11.8 only" in each for each in reviewed(text, "a.sh", "RTX 3090", "550.54.14").questions)


def test_what_hides_the_cards() -> None:
    run = "docker run -it pytorch/pytorch:2.7.1-cuda12.6-cudnn9-runtime python train.py\n"
    assert "without `--gpus`" in said(reviewed(run, "a.sh"))["run-without-cards"]
    assert said(reviewed(run.replace("-it", "-it --gpus all"), "a.sh")) == {}
    assert "hides every card" in said(reviewed("export CUDA_VISIBLE_DEVICES=all\n", "a.sh"))["cards-hidden"]
    for value in ("0,1", "-1", '""', "$CARDS"):
        assert "cards-hidden" not in said(reviewed(f"export CUDA_VISIBLE_DEVICES={value}\n", "a.sh"))


def test_the_image_of_a_docker_run_is_asked_too() -> None:
    text = "docker run --gpus all -v $PWD/a:/root/a vllm/vllm-openai:latest --model x/y\n"
    assert reviewed(text, "a.sh", "T4", "550.54.14").refused
    assert reviewed(text, "a.sh", "A100", "580.65.06").answered


def test_torch_names_one_triton() -> None:
    text = f"torch==2.6.0+cu118\ntriton==2.1.0\n--extra-index-url {INDEX.split()[1]}/cu118\n"
    assert "was made for torch 2.1" in said(reviewed(text, "requirements.txt", "RTX 3090"))["package-other-torch"]
    assert "package-other-torch" not in said(reviewed(text.replace("2.1.0", "3.2.0"), "requirements.txt", "RTX 3090"))


def test_a_jetson_is_not_served_by_pytorchs_own_wheels() -> None:
    image = "FROM nvcr.io/nvidia/l4t-base:r36.2.0\n"
    answer = reviewed(f"{image}RUN pip3 install torchvision\n", "Dockerfile", "Jetson AGX Orin")
    assert answer.refused and "NVIDIA's wheels for its JetPack" in said(answer)["wheel-not-for-the-card"]
    own = "https://developer.download.nvidia.com/x/torch-2.4.0a0+07cecf4168.nv24.05-cp310-cp310-linux_aarch64.whl"
    assert not reviewed(f"{image}RUN pip3 install {own}\n", "Dockerfile", "Jetson AGX Orin").refused


@pytest.mark.parametrize(("tag", "first"), [("r36.2.0", True), ("r36.4.0", False)])
def test_a_wheel_that_is_the_torch_is_no_companion_of_a_later_one(tag: str, first: bool) -> None:
    file = "https://nvidia-ai-iot.github.io/l4t-36/pytorch-2.1.0-cp310-cp310-linux_aarch64.whl"
    text = f"FROM nvcr.io/nvidia/l4t-base:{tag}\nRUN pip3 install {file}\nRUN pip3 install torchvision\n"
    answer = reviewed(text, "Dockerfile", "Jetson AGX Orin")
    assert [(each.line, each.id) for each in answer.remarks] == [(3, "wheel-not-for-the-card")]
    why = answer.remarks[0].why
    assert ("First update JetPack 6.0 to JetPack 6.1 and 6.2" in why) is first and "torch 2.5.0" in why


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (("--gpu", "Jetson AGX Orin"), "NVIDIA's own wheel of torch 2.5.0 for JetPack 6.1 and 6.2 with Python 3.10"),
        (("--gpu", "RTX 3090", "--os", "alpine"), "C library is musl"),
        (("--gpu", "K40c", "--os", "windows", "--python", "3.9"), "R470 is the last driver"),
    ],
)
def test_a_fix_is_held_against_the_place_as_the_fault_was(tmp_path: Path, place: tuple[str, ...], said: str) -> None:
    """On a Jetson, where PyTorch's own wheels are refused, another of PyTorch's own was the fix."""
    listed = tmp_path / "requirements.txt"
    listed.write_text("torch==2.6.0+cu124\n--index-url https://download.pytorch.org/whl/cu124\n", encoding="utf-8")
    seen = rekindle_command("review", str(listed), *place)
    assert seen.code == 8 and said in " ".join(seen.out.split())
    assert "has code for it" not in " ".join(seen.out.split()) and "+ torch" not in seen.out


@pytest.mark.parametrize(("version", "said"), [("0.8.0", "was made for torch 2.9"), ("0.99", "is not in the tables")])
def test_a_package_that_is_bound_to_a_torch_is_asked_about_in_every_release(version: str, said: str) -> None:
    reviewed = review_script(read(f"torchcodec=={version}\ntorch==2.8.0\n", name="requirements.txt"))
    assert any(said in remark.found for remark in reviewed.remarks)


PAIR = "torch==2.5.1 torchvision==0.20.1"
FLASH = """\
FROM pytorch/pytorch:2.5.0-cuda12.4-cudnn9-devel
ENV TORCH_CUDA_ARCH_LIST=9.0
RUN git clone https://github.com/Dao-AILab/flash-attention.git && cd flash-attention && \\
  MAX_JOBS=2 python setup.py install
RUN pip install -U xformers
"""


@pytest.mark.parametrize(
    ("script", "name", "expected"),
    [
        (f"pip install {PAIR} {INDEX}/cu124\npip install -U xformers\n", "a.sh", "torch-replaced-breaks"),
        # torchvision comes again; vLLM brings one that fits; torch is put back.
        (f"pip install {PAIR} {INDEX}/cu124\npip install -U xformers torchvision\n", "a.sh", "torch-replaced"),
        (f"pip install {PAIR} {INDEX}/cu124\npip install vllm==0.11.0\n", "a.sh", "torch-replaced"),
        (f"pip install {PAIR} {INDEX}/cu124\npip install -U xformers\npip install {PAIR}\n", "a.sh", "torch-replaced"),
        (
            FLASH,
            "Dockerfile",
            "torch-replaced-breaks",
        ),
    ],
)
def test_a_torch_that_is_replaced_under_what_was_made_for_it(script: str, name: str, expected: str) -> None:
    found = {each.id: each for each in reviewed(script, name, "H100").remarks}
    assert [each for each in found if each.startswith("torch-replaced")] == [expected]
    again = found[expected].why
    assert "in the command of line" not in again or name == "a.sh"


def test_no_index_is_advised_that_does_not_have_it() -> None:
    text = f"pip install torch==2.8.0 {INDEX}/cu124\npip install vllm==0.9.1\n"
    assert "whl/cu124" not in said(reviewed(text, "a.sh", "H100"))["torch-replaced"]


def test_a_list_that_names_a_package_once_with_and_once_without_a_pin() -> None:
    assert "requirement-twice" not in said(reviewed("six==1.16.0\ntorch==2.5.1\nsix\n", "requirements.txt"))
    assert "requirement-twice" not in said(reviewed("six==1.16.0\ntorch==2.5.1\nsix==1.16.0\n", "requirements.txt"))
    assert "requirement-twice" in said(reviewed("six>=1.10\ntorch==2.5.1\nsix<2\n", "requirements.txt"))


def test_a_python_that_was_told_is_held_against_the_line_of_the_pin() -> None:
    text = "--extra-index-url https://download.pytorch.org/whl/cu118\nsix\ntorch==2.1.0\n"
    answer = review_script(read(text, name="requirements.txt"), question_from_options(["RTX 4090"], python="3.12"))
    assert [each.line for each in answer.remarks if each.id == "python-not-supported"] == [3]


@pytest.mark.parametrize(
    ("name", "near"),
    [("cu11.8", "cu118"), ("cuda121", "cu121"), ("cu125", "cu124"), ("cu12", "cu129"), ("nightly/cu12.8", "cu128")],
)
def test_an_index_that_pytorch_does_not_have_is_said_with_its_neighbour(name: str, near: str) -> None:
    (remark,) = remarks(f"pip install torch {INDEX}/{name}\n", "a.sh")
    assert remark.id == "no-such-index" and f"/whl/{near} is one" in remark.why


@pytest.mark.parametrize("name", ["cu118", "cu130", "cu92", "cpu", "rocm6.1", "nightly/cu128", "cu999", "xpu"])
def test_an_index_that_may_be_there_is_not_refused_for_its_name(name: str) -> None:
    assert (remarks(f"pip install torch {INDEX}/{name}\n", "a.sh") == []) is (name != "cu999")


def test_an_index_of_a_matrix_is_judged_when_it_is_filled_in() -> None:
    text = (
        "on: push\njobs:\n  a:\n    runs-on: ubuntu-22.04\n"
        "    strategy:\n      matrix:\n        cuda: ['11.8', '126']\n"
        f"    steps:\n      - run: pip install torch {INDEX}/cu${{{{ matrix.cuda }}}}\n"
    )
    assert [rule for _, rule in found(text, "ci.yml")] == ["no-such-index"]


def test_a_service_whose_dockerfile_nobody_read_is_a_question() -> None:
    """Its neighbour was accepted, and with it the file."""
    text = (
        "services:\n  a:\n    build: .\n  b:\n    image: pytorch/pytorch:2.7.0-cuda12.6-cudnn9-runtime\n    gpus: all\n"
    )
    asked = Asked(gpus=(Capability.parse("8.6"),))
    answer = review_script(read(text, name="compose.yaml"), asked)
    assert any("`Dockerfile` does not lie beside" in each.why for each in answer.not_understood)
    assert not answer.refused and not answer.answered


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Makefile", "C ?= cu121\ni:\n\tpip install torch==2.2.2 {INDEX}/$(C)\n"),
        ("a.sh", "C=cu121\npip install torch==2.2.2 {INDEX}/${C}\n"),
        ("a.bat", "set C=cu121\npip install torch==2.2.2 {INDEX}/%C%\n"),
        ("a.ps1", "$C = 'cu121'\npip install torch==2.2.2 {INDEX}/$C\n"),
    ],
)
def test_an_index_behind_a_variable_is_not_half_replaced(name: str, text: str) -> None:
    """`whl/$(C)` became `whl/cu132)`."""
    answer = review_script(read(text.replace("{INDEX}", INDEX), name=name), Asked(gpus=(Capability.parse("12.0"),)))
    assert answer.refused
    assert not any("cu13" in (each.corrected or "") for each in answer.remarks)


MARKED = """--find-links https://download.pytorch.org/whl/torch_stable.html
torch==1.13.1+cu116; python_version == "3.10"
torchvision==0.14.1+cu116; python_version == "3.10"
torch==1.9.0+cu111; python_version < "3.10"
torchvision==0.10.0+cu111; python_version < "3.10"
--find-links https://download.openmmlab.com/mmcv/dist/cu111/torch1.9.0/index.html
mmcv-full==1.4.6; python_version < "3.10"
numpy==1.23.5
"""


@pytest.mark.parametrize(("python", "release"), [("3.10", "1.13.1"), ("3.9", "1.9.0")])
def test_a_list_with_markers_is_judged_for_the_python_that_is_told(python: str, release: str) -> None:
    asked = question_from_options(("RTX 4090",), python=python)
    answer = review_script(read(MARKED, name="requirements.txt"), asked)
    assert (answer.torch, answer.refused, answer.remarks) == (release, False, ())


def test_what_the_script_sets_anew_is_no_fault_before() -> None:
    """accelerate takes another torch, and the last line names it again before anything is used."""
    first, anew = f"pip install torch==1.12.1 {INDEX}/cu116\n", f"pip install torch==1.12.0 {INDEX}/cu116\n"
    text = f"{first}pip install -U torch accelerate\n"
    assert "torch-replaced" in {each.id for each in reviewed(text, "a.sh", "A100").remarks}
    assert "torch-replaced" not in {each.id for each in reviewed(text + anew, "a.sh", "A100").remarks}
    used = reviewed(f"{text}python train.py\n{anew}", "a.sh", "A100")
    assert any(each.id.startswith("torch-replaced") for each in used.remarks)


def test_poetry_is_told_in_its_own_words() -> None:
    text = f"pip install torch==2.7.1 {INDEX}/cu118\npoetry add fastapi torch\n"
    (found,) = (each for each in reviewed(text, "a.sh", "A100").remarks if each.id.startswith("torch-replaced"))
    assert "poetry source add" in found.why and "add --index-url" not in found.why and "torch out of" in found.why
