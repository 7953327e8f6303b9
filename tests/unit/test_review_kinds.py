"""The kinds of files that people have, each read into what it installs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rekindle.review.document import load, read
from rekindle.review.environment import environments_of
from rekindle.review.question import question_from_options
from rekindle.review.review import Reviewed, review_script, trace_of
from rekindle.review.subject import Subject
from support.command import rekindle_command

WHL = "https://download.pytorch.org/whl"


def reviewed(text: str, name: str, card: str = "RTX 5090") -> Reviewed:
    return review_script(read(text, name=name), question_from_options((card,)))


def torches(text: str, name: str) -> list[tuple[int, str]]:
    """The line and the torch of every environment that a file makes."""
    document = read(text, name=name)
    subject = Subject(document, trace_of(document), question_from_options(()))
    return [(each.line, each.spoken) for each in environments_of(subject).every]


REQUIREMENTS = f"""\
# what we need
--extra-index-url {WHL}/cu118
numpy<2 ; python_version >= "3.9"
torch==2.0.1+cu118 ; sys_platform != "win32"
torch==2.0.1 ; sys_platform == "win32"
torchvision \\
    ==0.15.2+cu118
"""
ENVIRONMENT = """\
name: old
channels: [pytorch, defaults]
dependencies:
  - python=3.8.5
  - cudatoolkit=11.3
  - pytorch=1.11.0
  - pip:
    - transformers==4.19.2
    - kornia==0.6.0
"""
UV = f"""\
[project]
name = "x"
dependencies = [
  "numpy",
  "torch==2.7.1",
]
[tool.uv.sources]
torch = [{{ index = "cu", marker = "sys_platform == 'linux'" }}]
[[tool.uv.index]]
name = "cu"
url = "{WHL}/cu118"
explicit = true
"""
POETRY = f"""\
[tool.poetry.dependencies]
python = "^3.10"
torch = {{ version = "^2.1", source = "pt" }}
numpy = "*"
[[tool.poetry.source]]
name = "pt"
url = "{WHL}/cu121"
"""
PIXI = """\
[workspace]
channels = ["conda-forge"]
platforms = ["linux-64"]
[dependencies]
python = "3.11.*"
[pypi-dependencies]
torch = { version = "==2.0.1" }
"""
RECIPE = """\
{% set version = "1.0" %}
package:
  name: x
  version: {{ version }}
build:
  script: python -m pip install .
requirements:
  host:
    - python
    - pytorch 1.12.1  # [linux]
    - pytorch 2.5.1  # [win]
  run:
    - cudatoolkit 11.3
"""
MAKEFILE = (
    "TORCH ?= 2.0.1\nPIP = python3 -m pip\n\ninstall: clean\n"
    "\t@$(PIP) install \\\n\t  torch==$(TORCH)\n\t-rm -rf build\n\nclean:\n\trm -f x$$y\n"
)
COMPOSE = """\
services:
  web:
    image: pytorch/pytorch:1.13.1-cuda11.6-cudnn8-runtime
    command: ["bash", "-c", "pip install einops"]
    gpus: all
"""
GITLAB = """\
image: python:3.10
build:
  script:
    - pip install torch==2.0.1
"""
README = f"""\
# Install
```bash
pip install torch==2.0.1 --index-url {WHL}/cu118
```
"""
CONDA_LIST = """\
# $ conda create --name <env> --file <this file> -c pytorch
python=3.8.12
pytorch=1.11.0=py3.8_cuda11.3_cudnn8.2.0_0
torchvision
"""
EXPLICIT = """\
@EXPLICIT
https://conda.example/pytorch/linux-64/pytorch-1.11.0-py3.8_cuda11.3_cudnn8.2.0_0.tar.bz2
"""
PROSE = f"""\
# Install
- not with `pip install torch`, which takes the newest
- but `pip install torch==2.0.1 --index-url {WHL}/cu118`
"""
BARE = f"""\
Install torch:
pip install torch==2.0.1 --index-url {WHL}/cu118
"""


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("requirements.txt", REQUIREMENTS, [(4, "torch 2.0.1+cu118")]),
        ("constraints.txt", "torch==2.0.1\n", [(1, "torch 2.0.1+cu117")]),
        ("environment.yml", ENVIRONMENT, [(6, "torch 1.11.0+cu113")]),
        ("pyproject.toml", UV, [(5, "torch 2.7.1+cu118")]),
        ("pyproject.toml", POETRY, [(3, "torch 2.5.1+cu121")]),
        ("pixi.toml", PIXI, [(7, "torch 2.0.1+cu117")]),
        ("meta.yaml", RECIPE, [(10, "torch 1.12.1+cu113")]),
        ("Makefile", MAKEFILE, [(6, "torch 2.0.1+cu117")]),
        (".gitlab-ci.yml", GITLAB, [(4, "torch 2.0.1+cu117")]),
        ("README.md", README, [(3, "torch 2.0.1+cu118")]),
        ("README.md", PROSE, [(3, "torch 2.0.1+cu118")]),
        ("README.md", BARE, [(2, "torch 2.0.1+cu118")]),
        ("requirements.txt", CONDA_LIST, [(3, "torch 1.11.0+cu113")]),
        ("spec.txt", EXPLICIT, [(2, "torch 1.11.0+cu113")]),
    ],
)
def test_each_kind_says_its_torch_and_the_line(name: str, text: str, found: list[tuple[int, str]]) -> None:
    assert torches(text, name) == found
    answer = reviewed(text, name)
    assert answer.refused and not answer.not_understood
    assert [each.line for each in answer.remarks if each.id == "wheel-not-for-the-card"] == [found[0][0]]


def test_an_image_of_compose_carries_its_torch() -> None:
    answer = reviewed(COMPOSE, "docker-compose.yml")
    assert [each.line for each in answer.remarks if each.id == "wheel-not-for-the-card"] == [3]
    assert reviewed(COMPOSE, "compose.yaml", "GTX 1080 Ti").answered


def test_the_arguments_that_compose_gives_a_dockerfile(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("ARG T=2.8.0\nARG C=12.8\nFROM pytorch/pytorch:$T-cuda$C-cudnn9-runtime\n")
    compose = tmp_path / "docker-compose.yml"
    compose.write_text(
        "services:\n  a:\n    build:\n      context: .\n      args:\n        - T=2.1.0\n        - C=12.1\n"
    )
    answer = review_script(load(compose), question_from_options(("RTX 5090",)))
    assert answer.refused and answer.torch == "2.1.0"
    compose.write_text("services:\n  a:\n    build: .\n")
    assert review_script(load(compose), question_from_options(("RTX 5090",))).torch == "2.8.0"


def test_a_list_is_one_resolution() -> None:
    """A package that goes with one torch decides which one an unpinned torch is."""
    assert torches("torch\nxformers==0.0.20\n", "requirements.txt")[-1] == (1, "torch 2.0.1+cu117")
    assert torches("torch>=2.7,<2.8\ntorchvision\n", "requirements.txt")[-1] == (1, "torch 2.7.1+cu126")


@pytest.mark.parametrize(
    "torch",
    [
        'pytorch-gpu = "2.5.*"\n[pypi-dependencies]\n',
        '[pypi-dependencies]\ntorch = {version = "==2.5.1", index = "https://download.pytorch.org/whl/cu124"}\n',
    ],
)
def test_pixi_resolves_condas_packages_and_pips_at_once(torch: str) -> None:
    head = '[workspace]\nchannels = ["conda-forge"]\nplatforms = ["linux-64"]\n[dependencies]\npython = "3.12.*"\n'
    wrong = reviewed(f'{head}{torch}xformers = "==0.0.28"\n', "pixi.toml", "RTX 4090")
    assert wrong.refused and [each.id for each in wrong.remarks] == ["package-other-torch"]
    assert reviewed(f'{head}{torch}xformers = "==0.0.29.post1"\n', "pixi.toml", "RTX 4090").answered


def test_pip_that_replaces_condas_torch_is_said() -> None:
    rows = ["channels: [conda-forge]", "dependencies:", "  - python=3.12", "  - pytorch-gpu=2.5"]
    text = "\n".join([*rows, "  - pip:", "    - xformers==0.0.28", ""])
    (remark,) = reviewed(text, "environment.yml", "RTX 4090").remarks
    assert remark.id == "torch-replaced" and "replaces torch 2.5.1 of line 4" in remark.found
    assert "conda's channel" in remark.why


def test_a_list_without_torch_is_not_accepted() -> None:
    answer = reviewed("numpy\nrequests\n", "requirements.txt")
    assert not answer.refused and not answer.answered and not answer.recognised


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pyproject.toml", "[project\n"),
        ("environment.yml", "dependencies:\n  - [\n"),
        ("docker-compose.yml", "services:\n  a: }\n"),
    ],
)
def test_what_is_broken_is_named_and_not_accepted(name: str, text: str) -> None:
    answer = reviewed(text, name)
    assert answer.not_understood and not answer.answered


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pyproject.toml", "project = 3\ntool = [1]\n"),
        ("pyproject.toml", '[project]\ndependencies = "torch"\n[tool.uv]\nindex = "x"\nsources = 1\n'),
        ("pixi.toml", "[dependencies]\ntorch = [1, 2]\n[feature]\na = 3\n"),
        ("environment.yml", "dependencies: 3\nchannels: {a: b}\n"),
        ("meta.yaml", "package: x\nrequirements: [a]\noutputs: 3\n"),
        ("docker-compose.yml", "services: [a]\n"),
        ("docker-compose.yml", "services:\n  a: 3\n  b:\n    build: [1]\n    command: {x: y}\n"),
        ("Makefile", "a:\n\t$(\n\t${x\n= 3\n"),
        ("requirements.txt", "-r\n--index-url\n-e\n"),
    ],
)
def test_odd_shapes_break_nothing(name: str, text: str) -> None:
    assert not reviewed(text, name).answered


FORGE = """\
name: x
channels: [conda-forge]
dependencies:
  - python=3.11
  - pytorch-gpu>=2.3
  - cuda-version={}
"""


@pytest.mark.parametrize(("pin", "accepted"), [("12.*", True), ("13.*", False)])
def test_conda_forge_takes_the_newest_build_of_the_cuda_that_is_pinned(pin: str, accepted: bool) -> None:
    answer = reviewed(FORGE.format(pin), "environment.yml", "GTX 1080")
    assert (answer.answered, answer.refused) == (accepted, not accepted)


@pytest.mark.parametrize(
    ("month", "card", "expected"),
    [
        ("23.10", "Tesla P40", (True, False)),
        ("25.12", "Tesla P40", (False, True)),
        ("25.03", "Tesla P40", (False, False)),
    ],
)
def test_nvidias_image_of_a_month_between_two_that_are_known(
    month: str, card: str, expected: tuple[bool, bool]
) -> None:
    answer = reviewed(f"FROM nvcr.io/nvidia/pytorch:{month}-py3\nRUN pip install einops\n", "Dockerfile", card)
    assert (answer.answered, answer.refused) == expected


def test_options_on_the_next_line_of_a_recipe_are_the_commands() -> None:
    text = f"install:\n\t@pip install torch==2.4.1+cu121 \\\n\t\t--index-url {WHL}/cu121\n"
    assert torches(text, "Makefile") == [(2, "torch 2.4.1+cu121")]
    assert reviewed(text, "Makefile", "RTX 4080").answered


def test_a_pipfile_names_the_place_of_each_package() -> None:
    text = f"""\
[[source]]
url = "https://a.org/simple"
name = "usual"

[[source]]
url = "{WHL}/cu113/"
name = "cu113"

[packages]
tqdm = "*"
torch = {{version = "==1.10.1+cu113", index = "cu113"}}
torchvision = {{version = "==0.11.2+cu113", index = "cu113"}}

[requires]
python_version = "3.9"
"""
    assert torches(text, "Pipfile") == [(11, "torch 1.10.1+cu113")]
    assert reviewed(text, "Pipfile").refused and not reviewed(text, "Pipfile", "RTX 3070").refused
    late = reviewed(text.replace('"3.9"', '"3.11"'), "Pipfile", "RTX 3070")
    assert late.refused, "torch 1.10.1 has no wheel for Python 3.11"


COG = 'build:\n  gpu: {}\n  python_version: "3.11"\n{}  python_packages:\n    - "torch=={}"\npredict: "p.py:P"\n'


@pytest.mark.parametrize(
    ("gpu", "cuda", "torch", "expected"),
    [
        ("true", "", "2.0.1", "torch 2.0.1+cu118"),  # not the ordinary index's cu117
        ("true", '  cuda: "11.7"\n', "2.0.1", "torch 2.0.1+cu117"),
        ("true", "", "2.4.1", "torch 2.4.1+cu124"),
        ("false", "", "2.4.1", "torch 2.4.1+cpu"),
    ],
)
def test_cog_chooses_the_line_itself(gpu: str, cuda: str, torch: str, expected: str) -> None:
    assert torches(COG.format(gpu, cuda, torch), "cog.yaml") == [(6 if cuda else 5, expected)]


def test_what_cog_takes_is_asked_where_nobody_knows() -> None:
    answer = reviewed(COG.format("true", "", "2.9.0"), "cog.yaml", "L40S")
    assert answer.questions == ("line 5: what it installs: which CUDA Cog takes for torch 2.9.0 is not known",)
    assert reviewed(COG.format("true", "  cuda: x\n", "2.0.1"), "cog.yaml", "L40S").questions


EXTRAS = f"""\
[project]
name = "x"
dependencies = ["torch==2.8.0", "einops"]
[project.optional-dependencies]
cpu = ["torch==2.8.0"]
cu129 = ["torch==2.8.0"]
[tool.uv.sources]
torch = [{{ index = "a", extra = "cpu" }}, {{ index = "b", extra = "cu129" }}]
[[tool.uv.index]]
name = "a"
url = "{WHL}/cpu"
[[tool.uv.index]]
name = "b"
url = "{WHL}/cu129"
"""


def test_a_dockerfile_of_the_folder_above_and_the_extra_it_names(tmp_path: Path) -> None:
    (tmp_path / "docker").mkdir()
    (tmp_path / "pyproject.toml").write_text(EXTRAS, encoding="utf-8")
    path = tmp_path / "docker" / "Dockerfile"
    text = "FROM nvidia/cuda:12.9.0-runtime-ubuntu24.04\nARG E={}\nCOPY pyproject.toml ./\nRUN uv sync --extra $E\n"
    for extra, expected in (("cu129", "accepted"), ("cpu", "refused")):
        path.write_text(text.format(extra), encoding="utf-8")
        answer = review_script(load(path), question_from_options(("RTX 5090",)))
        assert ("refused" if answer.refused else "accepted" if answer.answered else "open") == expected
    path.write_text(text.replace("COPY pyproject.toml ./\n", ""), encoding="utf-8")
    assert review_script(load(path), question_from_options(("RTX 5090",))).questions


def test_the_project_itself_in_pixis_list(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\ndependencies = ["torch>=2.0"]\n', encoding="utf-8")
    path = tmp_path / "pixi.toml"
    path.write_text(PIXI + 'x = { path = ".", editable = true }\n', encoding="utf-8")
    answer = review_script(load(path), question_from_options(("RTX 3080",)))
    assert answer.answered and answer.torch == "2.0.1"


CONDA_LIST = (
    "# This file may be used to create an environment using:\n# $ conda create --name <env> --file <this file>\n"
)
FAST = "https://example.org/stable_fast-0.0.15.post1+torch211cu121-cp310-cp310-manylinux2014_x86_64.whl"


@pytest.mark.parametrize(
    ("name", "text", "card", "expected"),
    [
        # Docker takes the quotes of both forms away.
        ("Dockerfile", 'FROM nvcr.io/nvidia/pytorch:24.05-py3\nENV TORCH_CUDA_ARCH_LIST "8.0"\n', "A100", "accepted"),
        # The list that conda reads is not there.
        ("a.sh", "pip install torch==2.6.0\nconda env create -f environment.yaml\n", "RTX 3090", "open"),
        ("a.sh", "pip install torch==2.6.0\nconda env update -f environment.yaml\n", "RTX 3090", "open"),
        # What conda wrote is read by conda, whatever the file is called.
        (
            "requirements.txt",
            CONDA_LIST + "# platform: linux-64\nh5py=3.11.0=py311_0\nnumpy=1.26.4=py311_0\n",
            None,
            "x",
        ),
        # A package that asks for one torch holds an open one back.
        ("requirements.txt", "torch>=2.0.1\ntorchdata==0.6.1\n", "H100", "refused"),
        # The wheel of a marked line, and 2.1.1 is not 2.11.
        ("requirements.txt", f"torch\nstable_fast @ {FAST}; sys_platform=='linux'\n", "RTX 4090", "refused"),
        ("requirements.txt", f"torch==2.1.1\nstable_fast @ {FAST}; sys_platform=='linux'\n", "RTX 4090", "accepted"),
        ("requirements.txt", "torch==2.6.0\nimageio[ffmpeg]\nimageio[pyav]\n", "A100", "accepted"),
    ],
)
def test_what_the_second_judge_of_whole_files_found(name: str, text: str, card: str | None, expected: str) -> None:
    asked = question_from_options((card,) if card else (), system="linux")
    answer = review_script(read(text, name=name), asked)
    assert not any(each.id in ("requirement-twice", "not-a-requirement") for each in answer.remarks)
    said = "refused" if answer.refused else "accepted" if answer.answered else "open"
    assert expected == "x" or said == expected, answer.remarks


def test_the_pip_of_an_image_builds_a_setup_py_beside_its_torch() -> None:
    """Only a pyproject.toml, which nobody read, would make it build apart."""
    text = "FROM nvidia/cuda:11.8.0-devel-{}\n{}RUN pip3 install torch==2.0.1\nRUN pip3 install simple-knn/\n"
    found = {
        (system, more): [each.id for each in reviewed(text.format(system, more), "Dockerfile", "A100").remarks]
        for system in ("ubuntu20.04", "ubuntu22.04")
        for more in ("", "RUN pip3 install -U pip\n")
    }
    assert {key: "isolation" in ids for key, ids in found.items()} == {
        ("ubuntu20.04", ""): False,
        ("ubuntu20.04", "RUN pip3 install -U pip\n"): False,
        ("ubuntu22.04", ""): False,
        ("ubuntu22.04", "RUN pip3 install -U pip\n"): True,
    }
    assert "isolation-maybe" in found["ubuntu22.04", ""]


def test_an_architecture_that_stands_in_the_list_is_not_added_to_it() -> None:
    text = 'export TORCH_CUDA_ARCH_LIST="7.5;12.0"\npip install torch==2.6.0\npip install --no-build-isolation apex\n'
    found = {each.id: each.corrected for each in reviewed(text, "a.sh").remarks}
    assert found["architecture-not-the-card"] is None


@pytest.mark.parametrize(("form", "name"), [("uv", "pyproject.toml"), ("pixi", "pixi.toml")])
def test_what_plan_prints_for_a_project_is_accepted(tmp_path: Path, form: str, name: str) -> None:
    """torchaudio has had no release for each torch since 2.11: beside a named torch it brings none of its own."""
    card = ("--gpu", "GTX 1070", "--os", "windows", "--python", "3.13")
    assert rekindle_command("plan", *card, "--as", form, "-o", str(tmp_path / name)).code == 0
    seen = rekindle_command("review", str(tmp_path / name), *card)
    assert seen.code == 0, seen.out
    assert ": accepted" in seen.out


@pytest.mark.parametrize(
    "text",
    [
        "- tasks:\n    - apt: {name: [nvidia-driver-450, nvidia-utils-450]}\n    - pip: {name: torch==2.4.0}\n",
        "- tasks:\n    - ansible.builtin.package: {name: nvidia-driver-450}\n    - pip: {name: torch==2.4.0}\n",
        "#cloud-config\npackages: [nvidia-driver-450, python3-pip]\nruncmd:\n  - pip3 install torch==2.4.0\n",
        "#!/bin/sh\nsudo sh cuda_11.0.2_450.51.05_linux.run --silent --driver --toolkit\npip install torch==2.4.0\n",
    ],
)
def test_a_driver_counts_however_it_is_installed(text: str) -> None:
    found = reviewed(text, "setup" if text.startswith("#!") else "site.yml", "RTX 2080 Ti")
    assert found.refused
    assert any("driver 450" in each.found and "CUDA 12.1" in each.found for each in found.remarks)


@pytest.mark.parametrize(
    ("name", "text", "dialect"),
    [
        ("gpu.toml", '[project]\nname = "a"\nrequires-python = ">=3.12"\ndependencies = ["torch==2.6.0"]\n', "project"),
        ("tests.ini", "[testenv]\ndeps = torch==2.6.0\n", "ini"),
        ("Makefile.cuda", "all:\n\tpip install torch==2.6.0\n", "makefile"),
        ("gpu.makefile", "all:\n\tpip install torch==2.6.0\n", "makefile"),
    ],
)
def test_a_known_kind_under_another_name(name: str, text: str, dialect: str) -> None:
    found = reviewed(text, name)
    assert (found.dialect, found.torch) == (dialect, "2.6.0")


def test_numpy_is_held_against_the_torch_that_a_range_takes() -> None:
    found = reviewed(
        '[project]\nname = "a"\ndependencies = ["torch>=2.2,<2.3", "numpy>=2"]\n', "pyproject.toml", "A100"
    )
    assert [each.id for each in found.remarks] == ["numpy-two-pinned"]


@pytest.mark.parametrize("listed", ["py39,py312", "py{39,312}", "\n    py3.9\n    py3.12"])
def test_each_python_that_tox_is_told_is_a_run_of_its_own(listed: str) -> None:
    found = reviewed(f"[tox]\nenvlist = {listed}\n[testenv]\ndeps = torch==2.10.0\n", "tox.ini")
    assert any(each.found == "torch 2.10.0 does not support Python 3.9" for each in found.remarks)
    assert not reviewed("[tox]\nenvlist = py312\n[testenv]\ndeps = torch==2.10.0\n", "tox.ini").refused


@pytest.mark.parametrize(
    ("python", "tool", "refused"),
    [
        (">=3.9,<3.10", "", True),
        (">=3.8", "", False),  # pip asks for the one that is there
        (">=3.8", "[tool.uv]\npackage = false\n", True),
        (">=3.10", "[tool.uv]\npackage = false\n", False),
        ("^3.9", "poetry", True),
        (">=3.10,<3.14", "poetry", False),
    ],
)
def test_a_project_is_held_against_every_python_that_it_is_locked_for(python: str, tool: str, refused: bool) -> None:
    text = f'[project]\nname = "a"\nrequires-python = "{python}"\ndependencies = ["torch==2.9.1"]\n{tool}'
    if tool == "poetry":
        text = f'[tool.poetry.dependencies]\npython = "{python}"\ntorch = "2.9.1"\n'
    found = reviewed(text, "pyproject.toml", "RTX 3090")
    assert [each.id for each in found.remarks if each.id == "python-not-supported"] == [
        "python-not-supported"
    ] * refused


def test_a_toolkit_without_its_driver_says_nothing_of_the_driver() -> None:
    text = "sudo sh cuda_11.0.2_450.51.05_linux.run --silent --toolkit\npip install torch==2.4.0\n"
    assert not reviewed(text, "setup.sh", "RTX 2080 Ti").refused


def test_an_image_of_another_maker_has_no_code_for_the_card() -> None:
    for image in ("rocm/pytorch:latest", "vllm/vllm-openai-rocm:v0.10.1", "rocm/dev-ubuntu-22.04:6.4"):
        assert reviewed(f"FROM {image}\nRUN pip list\n", "Dockerfile", "RTX 3090").refused


def test_what_the_index_has_as_source_alone_is_built_beside_the_torch() -> None:
    found = reviewed("torch==2.4.0\nmmcv-full==1.7.1\n", "requirements.txt", "RTX 4090")
    assert [each.id for each in found.remarks if each.state.value == "FAIL"] == ["isolation"]
    page = "-f https://download.openmmlab.com/mmcv/dist/cu117/torch1.13/index.html"
    text = f'pip install torch==1.13.1+cu117 "numpy<2" --extra-index-url {WHL}/cu117\npip install mmcv==2.0.1 {page}\n'
    assert reviewed(text, "setup.sh", "V100").answered


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.sh", f"pip install torch==${{TORCH}}+cpu -f {WHL}/torch_stable.html\n"),
        ("a.sh", f'pip install "torch==$1+cpu" --extra-index-url {WHL}/cpu\n'),
        ("a.bat", f"pip install torch==%TORCH%+cpu -f {WHL}/torch_stable.html\n"),
        ("a.ps1", f"pip install torch==$TORCH+cpu -f {WHL}/torch_stable.html\n"),
        ("Dockerfile", f"FROM python:3.10\nARG V\nRUN pip install torch==$V+cpu -f {WHL}/torch_stable.html\n"),
    ],
)
def test_a_torch_for_the_cpu_serves_no_card_whichever_release_it_is(name: str, text: str) -> None:
    assert reviewed(text, name, "GTX 1660").refused
    other = reviewed(text.replace("+cpu", "+cu118"), name, "GTX 1660")
    assert not other.refused and not other.answered, "which release it is stays a question"


def test_what_stands_behind_install_in_an_option_is_no_verb() -> None:
    rest = 'git+https://github.com/NVIDIA/MinkowskiEngine --install-option="--blas=openblas"'
    found = reviewed(f"pip install {rest}\n", "a.sh", "RTX 3090").remarks
    right = [each.corrected for each in found if each.id == "isolation"]
    assert right == [f"pip install --no-build-isolation {rest}"]


@pytest.mark.parametrize("language", ["terminal", "python", "Shell", "cmdline", "ipython3", "jupyter"])
def test_a_block_of_commands_is_read_whatever_its_language_is_called(language: str) -> None:
    block = f"# Setup\n```{language}\n!pip3 install torch==2.6.0 --index-url {WHL}/cu118\n!pip3 install tqdm\n```\n"
    assert torches(block, "README.md") == [(3, "torch 2.6.0+cu118")]
    assert torches(block.replace("!pip3 install tqdm", "print(1)"), "README.md") == [] or language == "Shell"


def test_a_list_in_notes_may_be_read_by_a_command_that_names_the_index() -> None:
    pins = "".join(f"{each}\n" for each in ("numpy==1.26.4", "tqdm==4.66.4", "torch==2.3.1+cu121", "pillow==10.3.0"))
    found = reviewed(f"Versions used:\n```\n{pins}```\n", "README.md", "RTX 3060")
    assert {each.id for each in found.remarks} == {"local-no-index-list"} and not found.refused


@pytest.mark.parametrize(
    "command", ["!pip install torch", "pixi add --pypi torch", "poetry add torch", "%pip install torch"]
)
def test_notes_that_name_no_system_are_not_for_windows(command: str) -> None:
    block = f"# Setup\n```\n{command}\n```\n"
    assert not reviewed(block, "README.md", "RTX 3060").refused
    windows = f"# Setup\n```\nset TORCH=1\n{command}\n```\n"
    assert any("for Windows" in each.found for each in reviewed(windows, "README.md", "RTX 3060").remarks)


def test_a_release_with_a_suffix_is_a_number_for_the_table_of_builds() -> None:
    text = "FROM nvidia/cuda:12.4.1-devel-ubuntu22.04\nRUN pip install flash-attn==2.7.4.post1\nRUN pip install torch\n"
    assert reviewed(text, "Dockerfile", "A100").refused


@pytest.mark.parametrize(
    ("rows", "card", "refused"),
    [
        # One right below another: both are meant, in this order.
        (f"pip install torch==2.9.1 --index-url {WHL}/cu126\npip install -U torch", "Tesla P40", True),
        (f"pip install torch==2.9.1 --index-url {WHL}/cu126\n# or\npip install -U torch", "Tesla P40", False),
        ("pip install --no-build-isolation flash-attn==2.8.3\npip install torch==2.8.0", "A100", True),
        ("pip install torch==2.8.0\npip install --no-build-isolation flash-attn==2.8.3", "A100", False),
        ("python3.13 -m venv v\n```\nand\n```\npip install torch==2.2.2", "A100", True),
    ],
)
def test_commands_of_notes_that_stand_together_follow_each_other(rows: str, card: str, refused: bool) -> None:
    assert reviewed(f"# How to\n\n```bash\n{rows}\n```\n", "README.md", card).refused == refused


def test_a_wheel_of_another_system_that_stands_alone_in_notes_is_a_question() -> None:
    wheel = "https://a.org/flash_attn-2.7.4+cu12torch2.5-cp310-cp310-win_amd64.whl"
    answer = reviewed(f"```bash\npip install torch==2.5.1\npip install {wheel}\n```\n", "README.md", "A100")
    assert any("windows" in each for each in answer.questions)


def test_a_cell_fills_in_the_names_of_python() -> None:
    cells = ["TORCH = '2.5.1'", "!pip install torch==$TORCH", "%pip install tqdm=={VISION}"]
    text = json.dumps({"cells": [{"cell_type": "code", "source": each} for each in cells]}, indent=1)
    assert torches(text, "a.ipynb") == [(9, "torch 2.5.1+cu124")]


@pytest.mark.parametrize(
    ("text", "name", "card", "found"),
    [
        ("uv run --with torch==2.5.1 --extra a train.py\n", "a.sh", "RTX 5090", (1, "torch 2.5.1+cu124")),
        (f"uvx --index {WHL}/cu128 --with=torch==2.8.0 jupyter\n", "a.sh", "RTX 5090", (1, "torch 2.8.0+cu128")),
        (
            f"[testenv]\ndeps = torch==2.7.1\nset_env =\n    PIP_INDEX_URL = {WHL}/cu128\n",
            "tox.ini", "RTX 5090", (2, "torch 2.7.1+cu128"),
        ),
        (
            f"[testenv]\ninstall_command = pip install -i {WHL}/cu118 {{opts}} {{packages}}\ndeps = torch==2.6.0\n",
            "tox.ini", "RTX 3090", (3, "torch 2.6.0+cu118"),
        ),
    ],
)  # fmt: skip
def test_what_brings_a_torch_of_its_own(text: str, name: str, card: str, found: tuple[int, str]) -> None:
    assert torches(text, name) == [found]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("[options]\npython_requires = ==3.12.*\ninstall_requires = torch==2.1.2\n", "setup.cfg"),
        ("from setuptools import *\nsetup(python_requires='>=3.12', install_requires=['torch==2.1.2'])\n", "setup.py"),
    ],
)
def test_a_project_that_allows_no_python_of_its_torch_is_refused(text: str, name: str) -> None:
    assert reviewed(text, name, "A100").refused
    assert not reviewed(text.replace("3.12", "3.11"), name, "A100").refused


def test_an_image_of_modal_is_told_its_variables_and_keeps_them() -> None:
    text = (
        "import modal\nimage = modal.Image.from_registry('nvidia/cuda:12.4.1-devel-ubuntu22.04')\n"
        "image = image.env({'TORCH_CUDA_ARCH_LIST': '7.0'})\nimage = image.run_commands('pip install torch==2.5.1', "
        "'pip install --no-build-isolation git+https://github.com/facebookresearch/pytorch3d')\n"
    )
    assert reviewed(text, "app.py", "A100").refused
    assert not reviewed(text.replace("7.0", "8.0"), "app.py", "A100").refused


def test_a_function_of_python_that_nobody_calls_installs_nothing() -> None:
    head = "import subprocess\ndef pip(*names):\n    subprocess.run(['pip', 'install', *names])\n"
    text = f"{head}subprocess.run(['pip', 'install', 'torch==2.8.0'])\n"
    assert reviewed(text, "a.py").answered
    assert reviewed(f"{text}pip('torch==2.5.1')\n", "a.py").refused


def test_what_a_script_hands_to_python_is_read() -> None:
    code = "import os\nos.system('pip install torch==2.5.1')\n"
    assert torches(f"echo a\npython3 - <<'EOF'\n{code}EOF\n", "a.sh") == [(4, "torch 2.5.1+cu124")]


def test_every_line_of_a_recipe_begins_in_the_same_folder(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for folder, torch in ((tmp_path, "2.7.1"), (tmp_path / "sub", "2.0.1")):
        (folder / "list.txt").write_text(f"torch=={torch}\n")
    text = "all:\n\tcd sub && pip install -r list.txt\n\tpip install -r list.txt\n"
    (tmp_path / "Makefile").write_text(text)
    assert review_script(load(tmp_path / "Makefile")).torch == "2.7.1"
    (tmp_path / "Makefile").write_text(".ONESHELL:\n" + text)
    assert review_script(load(tmp_path / "Makefile")).torch == "2.0.1"


TOX = """\
[tox]
envlist =
    py38-torch{113,241}
    py312-torch2{80,100}
[testenv]
setenv = PIP_EXTRA_INDEX_URL = {env:PIP_EXTRA_INDEX_URL:https://download.pytorch.org/whl/cu126}
deps =
    torch113: torch==1.13.1
    torch241: torch==2.4.1
    torch280: torch==2.8.0
    torch2100: torch==2.10.0
commands =
    pytest {posargs: \\
      -n 2 \\
      test}
"""


def test_the_factors_of_tox_choose_what_is_installed() -> None:
    assert torches(TOX, "tox.ini") == [
        (8, "torch 1.13.1+cu117"), (9, "torch 2.4.1+cu121"), (10, "torch 2.8.0+cu126"), (11, "torch 2.10.0+cu126"),
    ]  # fmt: skip
    assert reviewed(TOX, "tox.ini", "RTX 3060").answered
    assert not reviewed(TOX, "tox.ini", "RTX 3060").refused
    assert reviewed(TOX.replace("py38-torch{113", "py38-torch{280"), "tox.ini", "RTX 3060").refused


ENVIRONMENTS = """\
[project]
channels = ["pytorch", "nvidia"]
platforms = ["linux-64"]
[feature.py38.dependencies]
python = "3.8.*"
[feature.py311.dependencies]
python = "3.11.*"
[feature.old.dependencies]
pytorch = "1.11.0"
cudatoolkit = "11.3.*"
[feature.new.dependencies]
pytorch = "2.3.0"
pytorch-cuda = "12.1"
[environments]
first = ["py38", "old"]
second = { features = ["py311", "new"] }
"""


def test_an_environment_of_pixi_is_the_features_that_it_names() -> None:
    assert torches(ENVIRONMENTS, "pixi.toml") == [(9, "torch 1.11.0+cu113"), (12, "torch 2.3.0+cu121")]
    assert not reviewed(ENVIRONMENTS, "pixi.toml", "T4").refused
    assert reviewed(ENVIRONMENTS.replace('["py38", "old"]', '["py311", "old"]'), "pixi.toml", "T4").refused
    mkl = ENVIRONMENTS.replace('"nvidia"]', '"conda-forge"]').replace(
        'pytorch = "2.3.0"', 'mkl = "2023.*"\npytorch = "2.3.0"'
    )
    found = [(each.id, each.line) for each in reviewed(mkl, "pixi.toml", "T4").remarks]
    assert found == [("mkl-too-new", 9)]


POETRYS = f"""\
[project]
name = "x"
requires-python = ">=3.11,<3.12"
dependencies = ["torch>=2.2"]
[[tool.poetry.source]]
name = "cu"
url = "{WHL}/cu121"
priority = "explicit"
[tool.poetry.dependencies]
torch = {{ source = "cu" }}
"""


@pytest.mark.parametrize(
    ("text", "name", "torch"),
    [
        (
            f"poetry source add --priority=explicit cu {WHL}/cu121\npoetry add torch --source cu\n",
            "a.sh", (2, "torch 2.5.1+cu121"),
        ),
        (
            POETRYS,
            "pyproject.toml", (4, "torch 2.5.1+cu121"),
        ),
        (
            'V=11.8.0\nconda install -c pytorch -c nvidia pytorch==2.0.1 "pytorch-cuda=$(echo $V | cut -d. -f 1-2)"\n',
            "a.sh", (2, "torch 2.0.1+cu118"),
        ),
    ],
)  # fmt: skip
def test_what_says_which_torch_beside_its_name(text: str, name: str, torch: tuple[int, str]) -> None:
    assert torches(text, name)[0] == torch


def test_a_list_that_was_read_says_whether_it_holds_numpy_back(tmp_path: Path) -> None:
    """And a setup.py that is there is no build where it compiles nothing."""
    script = tmp_path / "a.ps1"
    script.write_text(
        "Set-Location $PSScriptRoot\npip install torch==2.1.1 torchvision==0.16.1 --index-url "
        f"{WHL}/cu121\npython setup.py develop\npip uninstall -y six 2>$null\npip install -r requirements.txt\n"
    )
    (tmp_path / "setup.py").write_text("from setuptools import setup\nsetup(name='x')\n")
    for listed, rules in (("mss\n", ["numpy-two"]), ("numpy<2\n", [])):
        (tmp_path / "requirements.txt").write_text(listed)
        found = review_script(load(script), question_from_options(("RTX 3060",)))
        assert [each.id for each in found.remarks] == rules
        assert found.answered


def test_miniforge_asks_conda_forge_behind_what_is_named() -> None:
    text = "FROM debian:12\nRUN bash {}.sh -b\nRUN conda install -y -c pytorch pytorch==2.0.1 pytorch-cuda=11.8\n"
    for installer, rules in (("Miniforge3", {"mkl-too-new"}), ("Miniconda3", set())):
        found = reviewed(text.format(installer), "Dockerfile", "T4")
        assert {each.id for each in found.remarks} & {"mkl-too-new"} == rules


def test_the_commands_of_jenkins_run_in_the_image_before_them() -> None:
    text = """\
pipeline {
    agent { docker { image 'pytorch/pytorch:0.4.1-cuda9-cudnn7-devel' } }
    environment { TOKEN = 'afac' }
    stages {
        stage('Build') { steps {
            sh 'pip install six'
            sh \'\'\'
                pip install torch==1.4.0
            \'\'\'
        } }
    }
}
"""
    assert torches(text, "Jenkinsfile") == [(8, "torch 1.4.0")]
    assert reviewed(text, "Jenkinsfile", "RTX 3080").refused
    newer = text.replace("torch==1.4.0", "torch==2.6.0")
    assert reviewed(newer, "Jenkinsfile", "RTX 3080").answered
    assert not reviewed(newer, "Jenkinsfile", "RTX 3080").refused


def test_an_old_pin_of_sklearn_is_no_fault() -> None:
    listed = "sklearn==0.0\ntorch==2.6.0\n"
    assert [each.id for each in reviewed(listed, "requirements.txt", "RTX 3080").remarks] == []
    assert reviewed(listed.replace("0.0", "0.0.post1"), "requirements.txt", "RTX 3080").refused
