"""`rekindle review` resolves a script into the environments it makes, and asks once whether they serve the card."""

from __future__ import annotations

from pathlib import Path

import pytest

from rekindle.knowledge.gpu.gpus import capabilities_of
from rekindle.review.document import load, read
from rekindle.review.packages import install_of, parts_of
from rekindle.review.question import Asked, question_from_options
from rekindle.review.review import Reviewed, review_script, trace_of
from rekindle.review.rules import wheels
from support.command import rekindle_command

CARD = {"new": "RTX 5090", "pascal": "GTX 1080 Ti", "kepler": "Tesla K80", "ampere": "RTX 3090", "ampere-80": "A100"}
CONDA = "channels: [pytorch, nvidia]\ndependencies:\n  - python=3.10\n  - pytorch=2.1.0\n  - pytorch-cuda=11.8\n"
WHL = "https://download.pytorch.org/whl"

MMCV = "https://download.openmmlab.com/mmcv/dist"
PYG = "https://data.pyg.org/whl/torch-2.8.0+cu128.html"
SAGE = "sageattention @ https://a.org/sageattention-2.2.0+cu128torch2.9.0-cp39-abi3-win_amd64.whl"


def reviewed(text: str, card: str | None = None, name: str = "a.sh", **place: str) -> Reviewed:
    asked = question_from_options((CARD[card],) if card else (), **place)  # type: ignore[arg-type]
    return review_script(read(text, name=name), asked)


def verdict(text: str, card: str | None = None, name: str = "a.sh", **place: str) -> str:
    answer = reviewed(text, card, name, **place)
    return "refused" if answer.refused else "accepted" if answer.answered else "open"


@pytest.mark.parametrize(
    ("line", "card", "expected"),
    [
        ("conda install pytorch==1.12.1 cudatoolkit=11.3", "new", "refused"),
        ("conda install pytorch==1.12.1 torchvision cudatoolkit=11.3 -c pytorch", "pascal", "accepted"),
        ("mamba install -c pytorch -c nvidia pytorch=2.5.1 pytorch-cuda=12.4", "new", "refused"),
        ("micromamba install -c conda-forge pytorch=1.10", "new", "refused"),
        ("pip install torch==2.0.1", "new", "refused"),
        ("pip install torch==2.0.1", "pascal", "accepted"),
        ("pip install torch==1.6.0+cu101", "new", "refused"),
        ("pip install torch==1.6.0+cu101", "pascal", "refused"),
        (f"pip install torch==1.6.0+cu101 -f {WHL}/torch_stable.html", "pascal", "accepted"),
        ("pip install torch==1.6.0", "pascal", "accepted"),
        ("uv pip install torch==2.9.1 --torch-backend cu128", "pascal", "refused"),
        ("uv pip install torch==2.9.1 --torch-backend=cu126", "pascal", "accepted"),
        ("uv pip install torch==2.9.1 --torch-backend=auto", "pascal", "open"),
        ("uv add torch==2.9.1", "pascal", "refused"),
        ("uv add torch==2.9.1", "new", "accepted"),
        ("poetry add torch==2.0.1", "new", "refused"),
        (f"pip install {WHL}/cu118/torch-2.0.1%2Bcu118-cp310-cp310-linux_x86_64.whl", "new", "refused"),
        ("pip install ./torch-2.0.1+cu118-cp310-cp310-linux_x86_64.whl", "ampere", "accepted"),
        ("pip install ./torch-2.7.1-cp310-cp310-linux_x86_64.whl", "ampere", "open"),
        ("pip install torch", "new", "accepted"),
        ("pip install torch", "pascal", "refused"),
        ("pip install 'torch<2.7'", "pascal", "accepted"),
        ("pip install 'torch<2.7'", "new", "refused"),
        ("pip install ultralytics", "pascal", "refused"),
        (f"pip install torch --index-url {WHL}/cu126", "pascal", "accepted"),
        # pip takes the higher number of two indexes: the ordinary one has it.
        (f"pip install torch --extra-index-url {WHL}/cu118", "pascal", "refused"),
        (f"pip install torch==2.7.1 --extra-index-url {WHL}/cu118", "pascal", "accepted"),
        (f"pip install --pre torch --index-url {WHL}/nightly/cu128", "new", "open"),
        (f"pip install --pre torch --index-url {WHL}/nightly/cu118", "new", "refused"),
        (f"pip install --pre torch --index-url {WHL}/nightly/cu128", "pascal", "refused"),
        (f"pip install --pre torch --index-url {WHL}/nightly/cu126", "pascal", "open"),
        (f"pip install torch==2.7.1+cpu --index-url {WHL}/cpu", "ampere", "refused"),
        ("pip install torchvision==0.15.2", "new", "refused"),
        ("pip install vllm==0.8.5", "new", "refused"),
        (f"python3.13t -m venv v\nv/bin/pip install torch==2.5.1 --index-url {WHL}/cu124", "ampere", "refused"),
        (f"pip install 'torch==2.3.2,<3' --index-url {WHL}/cu121", "ampere", "refused"),
        (f"pip install 'torch==2.3.1,<3' --index-url {WHL}/cu121", "ampere", "accepted"),
        ("pip install numpy", "new", "open"),
        ("echo hello", "new", "open"),
        ("pip install 'torch<2.7' 'torch>=1.8'", "pascal", "accepted"),
        ("pip install torch==2.6.0\nexit 0\npip install -U torch", "pascal", "accepted"),
        ("pip install torch==2.6.0\ntrue && exit 0\npip install -U torch", "pascal", "refused"),
        ("pip install 'torch<2.7' 'torch>=1.8'", "new", "refused"),
        ("pip install torch==${TORCH_VERSION}", "new", "open"),
        ("pip install torch==$(cat version.txt)", "new", "open"),
        ("pip install torch==2.7.1 -r not_here.txt", "ampere", "open"),
    ],
)
def test_accepted_is_what_was_asked_and_fits(line: str, card: str, expected: str) -> None:
    assert verdict(f"{line}\n", card) == expected


def test_a_line_that_was_not_understood_may_install_anything() -> None:
    assert verdict("pip install torch==2.8.0\nif true; then\npip install torch==2.0.1\n", "new") != "accepted"
    answer = reviewed("pip install torch==2.8.0\nfor ((; do pip install torch==2.0.1\n", "new")
    assert not answer.answered


def test_without_a_card_nothing_is_asked_of_it() -> None:
    answer = reviewed("pip install torch==2.0.1\n")
    assert answer.answered and not answer.questions


def test_the_words_and_the_exit_codes(tmp_path: Path) -> None:
    script = tmp_path / "a.sh"
    script.write_bytes(b"pip install torch==2.8.0\n")
    seen = rekindle_command("review", str(script), "--os", "linux")
    assert seen.code == 0 and "no fault found; no card was named" in seen.out
    seen = rekindle_command("review", str(script), "--os", "linux", "--gpu", "RTX 5090")
    assert seen.code == 0 and ": accepted" in seen.out
    seen = rekindle_command("review", str(script), "--os", "linux", "--gpu", "GTX 1080 Ti")
    assert seen.code == 8 and "torch 2.8.0+cu128 has no code for GeForce GTX 1080 Ti" in " ".join(seen.out.split())
    seen = rekindle_command("review", str(script), "--os", "linux", "--gpu", "RTX 5090", "--driver", "525.60.13")
    assert seen.code == 8 and "does not know GeForce RTX 5090" in " ".join(seen.out.split())
    script.write_bytes(b"pip install torch==${VERSION}\n")
    seen = rekindle_command("review", str(script), "--os", "linux", "--gpu", "RTX 5090")
    assert seen.code == 9 and "UNVERIFIED" in seen.out and "which torch" in seen.out


def test_the_python_that_was_told_decides_what_the_index_takes() -> None:
    assert verdict("pip install torch\n", "new", python="3.8") == "refused", "2.4.1 is the last for Python 3.8"
    assert verdict("pip install torch\n", "pascal", python="3.9") == "refused", "2.8.0 is of cu128"
    assert verdict("pip install torch\n", "pascal", python="3.8") == "accepted"


def test_the_python_and_the_glibc_of_an_image() -> None:
    text = "FROM nvidia/cuda:12.8.0-devel-ubuntu20.04\nRUN apt-get install -y python3-pip && pip3 install torch\n"
    assert verdict(text, "new", "Dockerfile") == "refused"
    assert verdict(text.replace("20.04", "22.04"), "new", "Dockerfile") == "accepted"
    old = (
        text.replace("ubuntu20.04", "ubuntu18.04").replace("pip3", "python3.11 -m pip").replace("torch", "torch==2.8.0")
    )
    assert "glibc" in " ".join(remark.found for remark in reviewed(old, "new", "Dockerfile").remarks)


def test_only_the_last_torch_of_an_environment_is_asked_about() -> None:
    text = f"pip install torch==2.0.1\npip install torch==2.8.0 --index-url {WHL}/cu128\n"
    assert verdict(text, "new") == "accepted"
    assert verdict("pip install torch==2.8.0\npip install torch==2.0.1\n", "new") == "refused"


def test_the_installer_of_uv_installs_uv() -> None:
    text = "FROM ubuntu:22.04\nADD https://astral.sh/uv/install.sh /uv-installer.sh\nRUN sh /uv-installer.sh\n"
    text += "RUN uv pip install --system torch==2.6.0\n"
    assert verdict(text, "ampere", "Dockerfile") == "accepted"
    assert verdict(text.replace("/uv-", "/our-"), "ampere", "Dockerfile") == "open"


@pytest.mark.parametrize("tag", ["0.7.0-cu1241-torch240-ubuntu2004", "3.10-2.0.0-117", "2.1.0-py3.10-cuda11.8.0-devel"])
def test_runpod_numbers_its_images_apart_from_torch(tag: str) -> None:
    for card, want in (("new", "refused"), ("ampere", "accepted")):
        assert verdict(f"FROM runpod/pytorch:{tag}\n", card, "Dockerfile") == want
    assert verdict("FROM runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404\n", "new", "Dockerfile") == "accepted"


def test_a_recipe_that_a_script_writes_is_read() -> None:
    spec = f"torch==2.7.0 --index-url {WHL}/cu128"
    head = "Bootstrap: docker\nFrom: ubuntu:22.04\n\n%post\n"
    shell = f': "${{SPEC:={spec}}}"\ncat > app.def <<EOF\n{head}    pip install ${{SPEC}}\nEOF\n'
    assert [verdict(shell, each) for each in ("new", "pascal")] == ["accepted", "refused"]
    docker = f"cat > Dockerfile <<'EOF'\nFROM python:3.11\nRUN pip install {spec}\nEOF\ndocker build .\n"
    assert [remark.line for remark in reviewed(docker, "pascal").remarks if remark.state.value == "FAIL"] == [3]


def test_the_torch_of_nvidias_image_is_replaced() -> None:
    start = "FROM nvcr.io/nvidia/pytorch:24.05-py3\n"
    for line in (
        "pip install torch==2.5.1",
        f"pip install -U xformers --index-url {WHL}/cu121",
        "pip install xformers",
    ):
        assert "torch-of-nvidia-replaced" in ids(f"{start}RUN {line}\n", name="Dockerfile")
    for line in ("pip install --no-deps xformers", "pip install torch", "pip install transformers"):
        assert "torch-of-nvidia-replaced" not in ids(f"{start}RUN {line}\n", name="Dockerfile")


def test_a_nightly_build_that_is_replaced_is_named() -> None:
    text = f"pip install --pre torch --index-url {WHL}/nightly/cu128\npip install vllm==0.15.1\n"
    said = next(each for each in reviewed(text, "new").remarks if each.id == "torch-replaced")
    assert "(cu128, not released)" in said.found and "None" not in said.found + said.why


def test_a_torch_that_a_package_takes_leaves_its_companions() -> None:
    index = f"--index-url {WHL}/cu126"
    text = f"pip install torch==2.9.0 torchvision==0.24.0 {index}\npip install {{}} {index}\n"
    assert ids(text.format("-U xformers"))["companion"] == 2
    assert ids("```\n" + text.format("-U xformers") + "```\n", name="README.md")["companion"] == 3
    assert "companion" not in ids(text.format("-U --no-deps xformers"))


def test_uv_goes_back_to_a_day() -> None:
    inline = '# /// script\n# dependencies = ["torch"]\n# [tool.uv]\n# exclude-newer = "{}T00:00:00Z"\n# ///\n'
    assert [verdict(inline.format(day), "pascal", "a.py") for day in ("2025-07-31", "2026-09-01")] == [
        "accepted",
        "refused",
    ]
    assert verdict("uv pip install torch --exclude-newer 2025-02-01\n", "new") == "refused"


def test_a_branch_is_an_alternative() -> None:
    text = 'if [ -n "$OLD" ]; then\n  pip install torch==2.0.1\nelse\n  pip install torch==2.8.0\nfi\n'
    assert verdict(text, "new") == "accepted"
    assert verdict(text.replace("2.8.0", "2.1.0"), "new") == "refused"
    one, other = (f"pip install torch==2.8.0 --index-url {WHL}/{line}\n" for line in ("cu128", "cu126"))
    text = f"if test -n $X; then\n  {one}else\n  {other}fi\n"
    assert verdict(text, "pascal") == "accepted", "the same number, another line"
    blocks = f"```bash\n{one}```\n\n```bash\n{other}```\n"
    assert verdict(blocks, "pascal", "README.md") == "accepted", "so are the blocks of notes"


def test_what_one_branch_sets_goes_together() -> None:
    """The last branch names the CPU and no release; the program is chosen by another `if`."""
    text = "if new; then\n  cuda=pytorch-cuda=11.7\n  torch=pytorch==1.13\nelif old; then\n  cuda=cudatoolkit=10.2\n"
    text += "  torch=pytorch==1.12\nelse\n  cuda=cpuonly\nfi\nif fast; then\n  with=mamba\nelse\n  with=conda\nfi\n"
    text += "$with install -y -n a -c pytorch -c nvidia $torch $cuda 'numpy<2' 'mkl<2024.1'\n"
    assert verdict(text, "ampere") == "accepted"
    found = sorted(remark.found for remark in reviewed(text, "new").remarks)
    assert len(found) == 2 and "1.12.0+cu102" in found[0] and "1.13.0+cu117" in found[1]
    apart = (
        f"if a; then\n  x={WHL}/cu126\nfi\nif b; then\n  x={WHL}/cu128\nfi\npip install torch==2.8.0 --index-url $x\n"
    )
    assert [verdict(apart, each) for each in ("new", "pascal")] == ["accepted"] * 2


def test_environments_are_told_apart() -> None:
    text = "conda create -y -n a python=3.10\nconda activate a\npip install torch==2.8.0\n"
    text += "conda create -y -n b python=3.10\nconda activate b\npip install torch==2.0.1\n"
    assert verdict(text, "new") == "refused"


def test_the_torch_of_debian_has_no_cuda() -> None:
    assert verdict("apt-get install -y python3-torch\n", "ampere") == "refused"
    assert verdict("apt-get install -y python3-torch-cuda\n", "ampere") == "open"


def test_windows_gets_no_cuda_from_the_ordinary_index() -> None:
    answer = reviewed("pip install torch==2.8.0\n", "new", "a.bat")
    assert answer.refused and "without CUDA" in answer.remarks[-1].found
    assert verdict(f"pip install torch==2.8.0 --index-url {WHL}/cu128\n", "new", "a.bat") == "accepted"


# --- order and replacement -------------------------------------------------------------------------------------------


def ids(text: str, card: str = "ampere", name: str = "a.sh") -> dict[str, int]:
    return {remark.id: remark.line for remark in reviewed(text, card, name).remarks}


def test_an_extension_before_torch() -> None:
    text = "pip install flash-attn --no-build-isolation\npip install torch==2.7.1\n"
    assert ids(text)["torch-after-extension"] == 1
    text = "pip install torch==2.7.1\npip install flash-attn --no-build-isolation\n"
    assert "torch-after-extension" not in ids(text)


@pytest.mark.parametrize(
    ("between", "wrong"),
    [
        ("", True),
        ("pip install -U pip ninja packaging\n", True),
        ("pip install torch==2.7.1\n", False),
        ("pip install -r requirements.txt\n", False),
        ("pip install somebodys-package\n", False),
        ("bash deps.sh\n", False),
    ],
)
def test_an_extension_in_an_environment_without_torch(between: str, wrong: bool) -> None:
    build = "pip install flash-attn --no-build-isolation\n"
    for start in (
        "python3.9 -m venv ./.venv\nsource .venv/bin/activate\n",
        "conda create -n e python=3.10 -y\nconda activate e\n",
    ):
        assert ("torch-after-extension" in ids(start + between + build)) is wrong
    assert "torch-after-extension" not in ids("source old/bin/activate\n" + between + build)
    system = "python3 -m venv --system-site-packages .venv\nsource .venv/bin/activate\n"
    assert "torch-after-extension" not in ids(system + between + build)


@pytest.mark.parametrize(
    ("page", "names", "behind"),
    [
        ("1.11.0+cu113", "torch-scatter torch-sparse", True),
        ("1.13.0+cu117", "torch-scatter", True),
        ("1.13.0+cu117", "torch-spline-conv", False),
        ("1.13.0+cu117", "torch-scatter --only-binary :all:", False),
        ("1.13.0+cu117", "torch-scatter==2.1.1", False),
        ("2.0.0+cu117", "torch-scatter", False),
    ],
)
def test_a_page_whose_wheels_are_older_than_the_source_on_the_index(page: str, names: str, behind: bool) -> None:
    line = page.partition("+")[2]
    text = f"pip install torch=={page} --extra-index-url {WHL}/{line}\n"
    text += f"pip install {names} -f https://data.pyg.org/whl/torch-{page}.html\n"
    answer = reviewed(text, "ampere", python="3.10")
    assert ("page-behind" in {remark.id for remark in answer.remarks}) is behind
    assert any("torch-scatter" in each for each in answer.questions) is behind and not answer.refused
    listed = (
        f"--extra-index-url {WHL}/{line}\n-f https://data.pyg.org/whl/torch-{page}.html\ntorch=={page}\ntorchvision\n"
    )
    if "--" not in names:
        text = listed + "\n".join(names.split()) + "\n"
        assert ("page-behind" in {each.id for each in reviewed(text, "ampere", "requirements.txt").remarks}) is behind


def test_python_by_a_variable_that_nobody_knows() -> None:
    for python in ("$PYTHON", "${DL_PYTHON_EXECUTABLE}", "${PYTHON:-python3}", "$PYTHON_BIN"):
        assert verdict(f"{python} -m pip install torch==2.0.1\n", "new") == "refused"


@pytest.mark.parametrize("enter", ["source /opt/conda/bin/activate e", "conda activate e", "source e/bin/activate"])
def test_condas_own_script_enters_the_environment_that_it_is_given(enter: str) -> None:
    text = f"conda create -y -n e python=3.8\n{enter}\npip install torch==2.0.1\n"
    assert not {"environment-other", "environment-not-made"} & {*ids(text)}
    text = "source ~/miniconda3/bin/activate\npip install torch==2.0.1\n"
    assert "environment-not-made" not in ids(text)


def test_an_upgrade_on_an_image_that_has_one() -> None:
    text = "FROM pytorch/pytorch:2.7.1-cuda12.6-cudnn9-runtime\nRUN pip install -U torch\n"
    assert ids(text, "pascal", "Dockerfile")["torch-replaced-not-for-the-card"] == 2
    assert verdict(text.replace(" -U", ""), "pascal", "Dockerfile") == "accepted"


def test_a_torch_that_nobody_knows_stays() -> None:
    text = "FROM nvcr.io/nvidia/pytorch:24.09-py3\nRUN pip install torch timm\n"
    assert verdict(text, "pascal", "Dockerfile") == "open"
    assert verdict(text.replace("torch timm", "torch==2.0.1"), "new", "Dockerfile") == "refused"


def test_vllm_over_a_pinned_torch() -> None:
    text = f"pip install torch==2.7.1 --index-url {WHL}/cu128\npip install vllm==0.8.5\n"
    assert ids(text)["torch-replaced"] == 2
    assert verdict(text, "new") == "refused", "it brings torch 2.6.0"


def test_the_newest_torch_against_the_toolkit_of_a_module() -> None:
    text = "module load CUDA/12.2\npip install torch\npip install --no-build-isolation flash-attn\n"
    assert ids(text)["toolkit-not-torchs"] == 1
    assert "toolkit-not-torchs" not in ids(text.replace("pip install torch", "pip install torch==2.5.1"))


# --- third-party wheels ----------------------------------------------------------------------------------------------

FLASH = "flash_attn-2.7.4.post1+cu12torch2.6cxx11abiFALSE-cp311-cp311-linux_x86_64.whl"


def test_a_wheel_for_another_torch_by_its_name() -> None:
    text = f"pip install torch==2.7.1\npip install https://github.com/x/releases/download/v2/{FLASH}\n"
    assert ids(text)["package-other-torch"] == 2
    assert "package-other-torch" not in ids(text.replace("2.7.1", "2.6.0"))


def test_pages_of_wheels_for_one_torch() -> None:
    text = f"pip install torch==2.5.1 --index-url {WHL}/cu121\n"
    text += "pip install torch-scatter torch-sparse -f https://data.pyg.org/whl/torch-2.5.0+cu121.html\n"
    assert not {"isolation", "package-other-torch"} & {*ids(text)}, "PyG's own line"
    assert ids(text.replace("2.5.1", "2.7.1").replace("121\npip", "126\npip"))["package-other-torch"] == 2


def test_packages_that_cannot_be_resolved_together() -> None:
    text = "torch==2.1.0\nxformers==0.0.22\n"
    assert ids(text, name="requirements.txt")["package-other-torch"] == 2
    assert "package-other-torch" not in ids("torch==2.1.0\nxformers==0.0.22.post7\n", name="requirements.txt")


# --- files beside the script -----------------------------------------------------------------------------------------


def test_lists_beside_the_script_are_followed(tmp_path: Path) -> None:
    (tmp_path / "base.txt").write_text("torch==2.0.1\n", encoding="utf-8")
    (tmp_path / "requirements.txt").write_text("-r base.txt\nnumpy\n", encoding="utf-8")
    script = tmp_path / "Dockerfile"
    script.write_text("FROM python:3.10\nCOPY requirements.txt /app/\nRUN pip install -r /app/requirements.txt\n")
    asked = Asked(gpus=capabilities_of(("RTX 5090",)))
    answer = review_script(load(script), asked)
    assert answer.refused and (3, "wheel-not-for-the-card") in [(each.line, each.id) for each in answer.remarks]
    assert "requirements.txt" in answer.remarks[-1].why


def test_constraints_and_projects_beside_the_script(tmp_path: Path) -> None:
    (tmp_path / "c.txt").write_text("torch==2.0.1\n", encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text('[project]\ndependencies = ["torch==2.0.1"]\n', encoding="utf-8")
    asked = Asked(gpus=capabilities_of(("RTX 5090",)))
    for line in ("pip install torch -c c.txt", "uv sync", "pip install -e ."):
        script = tmp_path / "a.sh"
        script.write_text(f"{line}\n", encoding="utf-8")
        assert review_script(load(script), asked).refused, line


# --- what pip takes for a requirement --------------------------------------------------------------------------------


def test_a_requirement_is_read_in_one_pass() -> None:
    """143 bytes of it once took for ever."""
    assert parts_of("x" + "==1," * 5000 + "!") is None
    assert parts_of("a" + "=" * 20_000) is None
    assert parts_of("torch[cu] >= 2.1 , <3 ; python_version > '3.8'") == ("torch", ">=2.1,<3", "python_version > '3.8'")


def test_options_with_their_value_attached() -> None:
    (item,) = trace_of(
        read("pip install -rlist.txt --index-url=https://x/simple -cpins.txt a\n", name="a.sh")
    ).invocations
    found = install_of(item)
    assert found is not None and (found.lists, found.constraints) == (("list.txt",), ("pins.txt",))
    assert found.index == "https://x/simple" and [each.name for each in found.wanted] == ["a"]


def test_a_snapshot_stands_for_the_machine(tmp_path: Path) -> None:
    script = tmp_path / "a.bat"
    script.write_text(f"pip install torch==2.0.1 --index-url {WHL}/cu118\n", encoding="utf-8")
    machine = Path(__file__).parents[1] / "machines" / "k40c-windows.json"
    seen = rekindle_command("review", str(script), "--machine", str(machine))
    assert seen.code == 8 and "K40c" in seen.out


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("requirements.txt", f"torch==2.6.0+cu124\n--index-url {WHL}/cu124\n", "needs driver 528.33 or newer"),
        ("a.bat", f"pip install torch==2.6.0 --index-url {WHL}/cu124\n", "needs driver 528.33 or newer"),
        ("a.sh", f"pip install torch==2.6.0 --index-url {WHL}/cu124\n", "CUDA in WSL 2 is for Pascal and newer"),
    ],
)
def test_a_recorded_windows_counts_by_the_drivers_of_windows(tmp_path: Path, name: str, text: str, said: str) -> None:
    """Linux's floor was said, 525.60.13; and what is for Linux runs there in WSL, on the same driver."""
    (tmp_path / name).write_text(text, encoding="utf-8")
    machine = Path(__file__).parents[1] / "machines" / "k40c-ready-windows.json"
    seen = rekindle_command("review", str(tmp_path / name), "--machine", str(machine))
    assert said in " ".join(seen.out.split()), seen.out


def test_an_index_has_a_content() -> None:
    """`--index-url` takes the Python package index away: accelerate is nowhere then."""
    line = f"pip install torch==2.4.0 accelerate --index-url {WHL}/cu121\n"
    assert verdict(line, "ampere") == "refused"
    assert verdict(line.replace("--index-url", "--extra-index-url"), "ampere") == "accepted"
    assert (
        verdict(f"pip install torch==2.4.0 numpy torchvision==0.19.0 --index-url {WHL}/cu121\n", "ampere") == "accepted"
    )


def test_a_lower_bound_is_held_against_the_torch_of_the_command() -> None:
    assert verdict("pip install torch==2.5.1 'xformers>=0.0.30'\n", "ampere") == "refused"
    assert verdict("pip install torch==2.5.1 'xformers>=0.0.28'\n", "ampere") == "accepted"


def test_conda_solves_the_release_with_the_cuda_of_the_line() -> None:
    answer = reviewed("conda install pytorch cudatoolkit=10.2 -c pytorch\n", "ampere")
    said = " ".join(each.found for each in answer.remarks)
    assert "torch 1.12.1+cu102 has no code" in said


def test_the_cuda_of_an_image_matters_where_something_is_compiled() -> None:
    pip = "apt install -y python3-pip; pip"
    text = f"FROM nvidia/cuda:11.6.2-base-ubuntu22.04\nRUN {pip} install torch==2.7.1 --index-url {WHL}/cu128\n"
    assert not any("11.6" in each.found for each in reviewed(text, "new", name="Dockerfile").remarks)


def test_why_a_replacement_does_not_run_is_said_as_it_is(tmp_path: Path) -> None:
    """A driver that is too old was told as code that is missing."""
    script = tmp_path / "a.sh"
    script.write_bytes(
        b"pip install torch==2.0.1 --index-url https://download.pytorch.org/whl/cu118\npip install -U torch\n"
    )
    seen = rekindle_command("review", str(script), "--os", "linux", "--gpu", "RTX 3090", "--driver", "515.65.01")
    said = " ".join(seen.out.split())
    assert "has no code for" not in said and "driver 515.65.01 does not run" in said


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ("", 8),
        ("    environment:\n      - NVIDIA_VISIBLE_DEVICES=all\n", 8),
        ("    gpus: all\n", 0),
        ("    runtime: nvidia\n", 0),
        (
            "    deploy: {resources: {reservations: {devices: [{driver: nvidia, capabilities: [gpu]}]}}}\n",
            0,
        ),
        ("    devices:\n      - nvidia.com/gpu=all\n", 0),
    ],
)
def test_a_service_is_given_the_card(tmp_path: Path, more: str, code: int) -> None:
    path = tmp_path / "compose.yaml"
    text = (
        f"services:\n  web:\n    image: nginx\n  t:\n    image: pytorch/pytorch:2.7.0-cuda12.6-cudnn9-runtime\n{more}"
    )
    path.write_bytes(text.encode())
    assert rekindle_command("review", str(path), "--gpu", "RTX 3090").code == code


def test_what_plan_knows_of_early_lines_review_knows() -> None:
    assert verdict("FROM pytorch/pytorch:1.8.1-cuda11.1-cudnn8-runtime\n", "ampere", name="Dockerfile") == "accepted"


def test_the_python_of_a_distribution_has_its_own_last_numpy() -> None:
    text = (
        f"FROM nvidia/cuda:11.6.0-base-ubuntu20.04\nRUN pip3 install torch==1.10.1+cu113 -f {WHL}/torch_stable.html\n"
    )
    text += "RUN pip3 install numpy\n"
    assert not any("NumPy" in each.found for each in reviewed(text, "ampere", name="Dockerfile").remarks)
    newer = text.replace("20.04", "22.04")
    assert any("NumPy" in each.found for each in reviewed(newer, "ampere", name="Dockerfile").remarks)


@pytest.mark.parametrize(
    "line",
    [
        "torch==2.3.1+rocm6.0 --index-url {}/rocm6.0",
        "--pre torch --index-url {}/nightly/rocm6.2",
        "torch --index-url {}/xpu",
    ],
)
def test_a_build_for_another_makers_cards_is_refused(line: str) -> None:
    answer = reviewed(f"pip install {line.format(WHL)}\n", "ampere")
    assert answer.refused and [each.id for each in answer.remarks] == ["wheel-not-for-the-card"]


def test_options_behind_a_requirement_do_not_hide_it() -> None:
    """pip skips them; the list was accepted as if it named no torch."""
    text = f"torch==2.5.1 -f {WHL}/cu121\ntorchvision==0.16.1\n"
    assert verdict(text, "ampere", name="requirements.txt") == "refused"


@pytest.mark.parametrize(
    ("text", "card", "name", "expected"),
    [
        # The newest release asks for a newer torch than the one that is there, and pip takes both.
        (f"pip install torch==1.13.1+cu117 -f {WHL}/torch\npip install -U accelerate\n", "pascal", "a.sh", "refused"),
        (f"pip install torch==2.5.1 --index-url {WHL}/cu121\npip install accelerate\n", "pascal", "a.sh", "accepted"),
        (f"torch==1.13.1+cu117\naccelerate\n--extra-index-url {WHL}/cu117\n", "pascal", "requirements.txt", "accepted"),
        # What a package brought satisfies the version of the next line: the CPU build stays.
        (
            f"pip install chatterbox-tts\npip install torch==2.6.0 --index-url {WHL}/cu118\n",
            "pascal",
            "a.bat",
            "refused",
        ),
        # The shell reads from a file called `2`.
        (f"pip install torch --index-url {WHL}/cu128\npip install pytorch-lightning <2\n", "new", "a.sh", "refused"),
        # Made for another torch.
        (f"torch==2.4.0\ntorchtext==0.18.0\n--extra-index-url {WHL}/cu124\n", "ampere", "requirements.txt", "refused"),
    ],
)
def test_what_other_packages_do_to_the_torch_that_is_there(text: str, card: str, name: str, expected: str) -> None:
    """Each was called accepted."""
    assert verdict(text, card, name=name) == expected


def test_the_torch_that_is_named_instead_has_the_python_of_the_file() -> None:
    text = "name: a\nchannels: [pytorch]\ndependencies:\n  - python=3.9\n  - pytorch\n  - pytorch-cuda=12.4\n"
    answer = reviewed(text, "new", name="environment.yml")
    (why,) = [each.why for each in answer.remarks if "has code for it" in each.why]
    assert "`python=3.9`, `pytorch=" in why and "--index-url" not in why, "and what installs the file has it"


def test_no_torch_for_that_python_is_said() -> None:
    answer = reviewed("conda create -n a python=3.8 pytorch==2.4.1 -c pytorch\n", "new")
    assert any("No torch for Python 3.8 has code for it" in each.why for each in answer.remarks)


def test_the_python_of_a_distribution_by_its_full_name_is_no_other() -> None:
    base = "FROM nvidia/cuda:12.1.1-devel-ubuntu22.04\nRUN apt-get install -y {} python3-pip\nRUN pip3 install torch\n"
    plain, full = (reviewed(base.format(each), "pascal", name="Dockerfile") for each in ("python3", "python3.10"))
    assert [each.found for each in plain.remarks] == [each.found for each in full.remarks]


def test_a_package_that_pins_torch_replaces_it() -> None:
    answer = reviewed("pip install torch==2.9.1\npip install whisperx==3.8.1\n", "ampere")
    assert any("whisperx 3.8.1 was made for another torch" in each.found for each in answer.remarks)
    assert answer.torch == "2.8.0"


def test_what_a_matrix_takes_out_is_not_run() -> None:
    text = (
        "on: push\njobs:\n  a:\n    runs-on: ubuntu-22.04\n    strategy:\n      matrix:\n"
        "        torch: [2.0.1, 2.7.1]\n        line: [cu118, cu128]\n        exclude:\n"
        "          - {torch: 2.0.1, line: cu128}\n          - {torch: 2.7.1, line: cu118}\n"
        "          - {torch: 2.7.1, line: cu128}\n    steps:\n"
        f"      - run: pip install torch==${{{{ matrix.torch }}}} --index-url {WHL}/${{{{ matrix.line }}}}\n"
    )
    name = ".github/workflows/a.yml"
    assert (reviewed(text, "new", name=name).torch, verdict(text, "new", name=name)) == ("2.0.1", "refused")
    whole = text.replace("          - {torch: 2.7.1, line: cu128}\n", "")
    assert verdict(whole, "new", name=name) == "accepted"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.sh", "source .venv/bin/activate\npip install torch==2.8.0\n", "open"),
        ("a.sh", "python3 -m venv .venv\nsource .venv/bin/activate\npip install torch==2.8.0\n", "accepted"),
        ("a.sh", "uv venv\nsource .venv/bin/activate\nuv pip install torch==2.8.0\n", "accepted"),
        ("README.md", "```bash\nconda activate lab\npip install torch==2.8.0\n```\n", "open"),
        ("Dockerfile", "FROM python:3.11\nRUN . /opt/env/bin/activate && pip install torch==2.8.0\n", "refused"),
        (
            "Dockerfile",
            "FROM python:3.11\nRUN python -m venv /opt/env && . /opt/env/bin/activate && pip install torch==2.8.0\n",
            "accepted",
        ),
    ],
)
def test_an_environment_is_made_before_it_is_entered(name: str, text: str, expected: str) -> None:
    assert verdict(text, "new", name) == expected


@pytest.mark.parametrize("line", ["poetry add torch", "pdm add torch torchvision", "uv add torch"])
def test_a_projects_tool_takes_its_own_torch(line: str) -> None:
    text = f"poetry run pip install torch --index-url {WHL}/cu118\n{line}\n"
    assert verdict(text, "ampere", "a.ps1") == "refused", "the ordinary index has none with CUDA for Windows"
    assert verdict(text.replace(line, "pip install torch"), "ampere", "a.ps1") == "accepted"


def test_a_page_is_judged_once_and_a_file_is_no_page() -> None:
    pyg = "-f https://data.pyg.org/whl/torch-2.0.1+cu118.html"
    answer = reviewed(f"{pyg}\ntorch==2.1.2\nnumpy<2\ntorch-scatter\n", "ampere", "requirements.txt")
    assert [(each.id, each.line) for each in answer.remarks if each.id == "package-other-torch"] == [
        ("package-other-torch", 4)
    ]
    file = f"-f {WHL}/cpu/torch-2.0.1%2Bcpu-cp39-cp39-linux_x86_64.whl"
    assert verdict(f"{file}\ntorch==2.1.2\nnumpy<2\n", "ampere", "requirements.txt") == "accepted"


def test_a_run_may_end_with_a_backslash() -> None:
    text = "FROM nvidia/cuda:12.8.0-base-ubuntu22.04\nRUN apt install python3-pip -y; pip3 install torch==2.8.0 \\\n\n"
    assert verdict(text, "new", "Dockerfile") == "accepted"


def test_a_python_that_is_only_mentioned_is_not_the_images() -> None:
    image = "FROM nvidia/cuda:12.8.0-devel-ubuntu20.04\n# once python3.7\nRUN apt-get install -y python3-pip\n"
    assert verdict(f"{image}RUN pip3 install torch\n", "new", "Dockerfile") == "refused", "Python 3.8 has torch 2.4.1"
    assert verdict("python3.7 --version\npip install torch==2.8.0\n", "new") == "accepted"
    assert verdict("python3.7 -m pip install torch==2.8.0\n", "new") == "refused"
    old = f"pip install torch==1.7.1+cu110 -f {WHL}/torch_stable.html\n"
    assert verdict(old, "pascal", python="3.10") == "refused" and verdict(old, "pascal", python="3.8") == "accepted"
    assert verdict("pip install torch==1.5.0\n", "pascal", python="3.10") == "refused", "as 1.5.1, which is known"
    assert verdict("python3.7 old.py\npython3.11 -m pip install torch==2.8.0\n", "new") == "accepted"


def test_a_list_above_the_script_is_not_the_one_beside_it(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_bytes(b"torch==2.8.0\n")
    script = tmp_path / "a.sh"
    for line in ("cd ..\npip install -r requirements.txt\n", "pip install -r ../requirements.txt\n"):
        script.write_bytes(line.encode())
        answer = review_script(load(script), question_from_options((CARD["new"],)))
        assert not answer.answered and "does not lie beside the script" in " ".join(answer.questions)
    script.write_bytes(b"pip install -r requirements.txt\n")
    assert review_script(load(script), question_from_options((CARD["new"],))).answered


@pytest.mark.parametrize(
    ("name", "text", "card", "expected"),
    [
        # Its newest release asks for a newer torch, which pip puts in the place of the one that was pinned.
        ("a.sh", f"pip install torch==2.7.1 --index-url {WHL}/cu118\npip install monai\n", "pascal", "refused"),
        ("a.sh", f"pip install torch==2.7.1 --index-url {WHL}/cu118\npip install 'monai>=1.3'\n", "pascal", "refused"),
        ("a.sh", f"pip install torch==2.6.0 --index-url {WHL}/cu118\npip install monai==1.5.0\n", "pascal", "accepted"),
        ("a.sh", "pip install torch==2.0.1\npip install monai==1.3.0\n", "pascal", "accepted"),
        ("requirements.txt", "torch==2.0.1\nmonai==1.5.0\n", "pascal", "refused"),
        ("requirements.txt", "torch==2.0.1\nmonai\n", "pascal", "accepted"),
        ("requirements.txt", "torch==2.0.1\npytorch-lightning==2.4.0\n", "pascal", "refused"),
        ("requirements.txt", "torch==2.0.1\npytorch-lightning==2.0.9\n", "pascal", "accepted"),
        ("requirements.txt", "torch==2.0.1\nliger-kernel==0.3.0\n", "pascal", "open"),
        ("requirements.txt", "torch==2.6.0\nliger-kernel==0.3.0\n", "pascal", "accepted"),
        ("environment.yml", f"{CONDA}  - pip:\n    - monai\n", "pascal", "refused"),
        ("environment.yml", f"{CONDA}  - pip:\n    - monai==1.3.0\n", "pascal", "accepted"),
    ],
)
def test_what_a_package_asks_of_torch_is_asked(name: str, text: str, card: str, expected: str) -> None:
    assert verdict(text, card, name) == expected


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--os", "alpine"), "musl"),
        (("--os", "win7"), "Windows 7"),
        (("--os", "centos7"), "needs glibc 2.28"),
        (("--os", "windows", "--python", "3.12-32"), "32-bit"),
        (("--os", "wsl2", "--gpu", "Tesla K80"), "WSL 2 is for Pascal"),
    ],
)
def test_the_place_that_is_named_is_asked_about(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    """`plan` had no PyTorch there, and this was accepted."""
    script = tmp_path / "install.sh"
    script.write_text("pip install torch==2.7.1 --index-url https://download.pytorch.org/whl/cu126\n", encoding="utf-8")
    seen = rekindle_command("review", str(script), "--gpu", "GTX 1080 Ti", *words)
    assert seen.code == 8 and said in " ".join(seen.out.split()), seen.out
    image = tmp_path / "Dockerfile"
    image.write_text("FROM python:3.12\nRUN " + script.read_text(encoding="utf-8"), encoding="utf-8")
    if words == ("--os", "alpine"):
        assert "musl" not in rekindle_command("review", str(image), "--gpu", "GTX 1080 Ti", *words).out


@pytest.mark.parametrize(
    ("name", "text", "card", "place", "expected"),
    [
        # The line has no wheel for this Python, or the range none on this line.
        ("a.sh", f"pip install torch --index-url {WHL}/cu118\n", "ampere", {"python": "3.14"}, "refused"),
        ("a.sh", f"pip install torch --index-url {WHL}/cu118\n", "ampere", {"python": "3.12"}, "accepted"),
        ("a.sh", f"pip install 'torch>=2.8' --index-url {WHL}/cu124\n", "ampere", {}, "refused"),
        # A Python without the global lock takes other wheels.
        ("a.sh", "uv venv --python 3.13t\nuv pip install torch==2.5.1\n", "ampere", {}, "refused"),
        ("a.sh", "uv venv --python 3.13t\nuv pip install torch==2.8.0\n", "ampere", {}, "accepted"),
        # PyTorch's own index of a line has releases only, whatever `--pre` admits.
        ("a.sh", f"pip install --pre torch==2.9.1 --index-url {WHL}/cu128\n", "new", {}, "accepted"),
        ("a.sh", f"pip install --pre torch --index-url {WHL}/nightly/cu128\n", "new", {}, "open"),
        # A marker behind an address is no part of it.
        (
            "requirements.txt",
            f"--extra-index-url {WHL}/cu128\ntorch==2.9.1+cu128\n{SAGE} ; sys_platform == 'win32'\n",
            "new",
            {"system": "windows", "python": "3.11"},
            "accepted",
        ),
        # The last commit of a repository asks for what its newest release does.
        ("requirements.txt", "torch==2.0.1\ngit+https://github.com/m-bain/whisperx.git\n", "pascal", {}, "refused"),
        ("requirements.txt", "torch==2.0.1\ngit+https://github.com/m-bain/whisperx@v3.1\n", "pascal", {}, "accepted"),
        # What a build holds is not known, but its CUDA is, and the driver does not run that.
        (
            "a.sh",
            f"pip install torch==1.8.1+cu101 -f {WHL}/torch_stable.html\n",
            "pascal",
            {"driver": "410.104", "python": "3.8"},
            "refused",
        ),
        # Words in a variable are what pip is told.
        ("a.sh", "PIP='python -m pip'\nWANT='torch torchvision'\n$PIP install $WANT\n", "pascal", {}, "refused"),
        # In notes, too, a package that comes behind torch may replace it.
        (
            "a.md",
            f"```sh\npip install torch==2.6.0 --index-url {WHL}/cu124\npip install vllm\n```\n",
            "pascal",
            {},
            "refused",
        ),
        (
            "a.md",
            f"```sh\npip install torch==2.6.0 --index-url {WHL}/cu124\npip install tqdm\n```\n",
            "pascal",
            {},
            "accepted",
        ),
        # What replaces torch on a Python of its own does not serve the card.
        (
            "a.md",
            f"```sh\npip install torch==1.13.1+cu116 --extra-index-url {WHL}/cu116\npip install kornia\n```\n",
            "pascal",
            {"python": "3.9"},
            "refused",
        ),
        # A list without -r, a version without a number, a wheel of another system, a page named as an index.
        (
            "a.md",
            f"```python\npip install torch --index-url {WHL}/cu126\npip install a.txt\n```\n",
            "new",
            {},
            "refused",
        ),
        ("a.sh", f"pip install torch==2.8.0\npip install torch-sparse==latest+cu128 -f {PYG}\n", "new", {}, "refused"),
        ("requirements.txt", "torch-2.0.1+cu118-cp311-cp311-win_amd64.whl\n", "ampere", {"python": "3.11"}, "refused"),
        (
            "requirements.txt",
            "torch-2.0.1+cu118-cp311-cp311-win_amd64.whl\n",
            "ampere",
            {"python": "3.11", "system": "windows"},
            "accepted",
        ),
        (
            "a.sh",
            f"pip install torch==2.0.1+cu118 --extra-index-url {WHL}/cu118/torch_stable.html\n",
            "ampere",
            {"python": "3.9"},
            "refused",
        ),
        # A channel of nightly builds.
        (
            "environment.yml",
            "channels: [nvidia, pytorch-nightly]\ndependencies:\n  - pytorch\n  - pytorch-cuda=12.1\n",
            "ampere",
            {},
            "open",
        ),
        # A project that nobody read may ask for another torch; a companion that stays was made for another.
        ("a.sh", f"pip install torch --index-url {WHL}/cu126\npip install -e .\n", "pascal", {}, "open"),
        ("a.sh", f"pip install torch --index-url {WHL}/cu126\npip install -e . --no-deps\n", "pascal", {}, "accepted"),
        ("a.sh", "pip install torch torchvision\npip install whisperx==3.8.1\n", "new", {"python": "3.12"}, "open"),
        # What only starts another program; a page that OpenMMLab has not; a page for another torch, named as an index.
        ("a.sh", f"pixi run python -m pip install torch --index-url {WHL}/cu121\n", "new", {}, "refused"),
        (
            "a.sh",
            f"pip install torch==2.0.1\npip install mmcv-full -f {MMCV}/cu117/1.13/index.html\n",
            "ampere",
            {},
            "refused",
        ),
        (
            "a.sh",
            "pip install torch==2.6.0\npip install flashinfer-python -i https://flashinfer.ai/whl/cu124/torch2.3/\n",
            "ampere",
            {},
            "refused",
        ),
        # A release of which only a patch is in the tables.
        (
            "requirements.txt",
            f"-f {WHL}/torch_stable.html\ntorch==1.8.0+cu111\n",
            "ampere",
            {"python": "3.8"},
            "accepted",
        ),
        # A script that installs and was not read.
        (
            "Dockerfile",
            "FROM pytorch/pytorch:2.3.0-cuda12.1-cudnn8-runtime\nRUN bash ./install.sh\n",
            "ampere",
            {},
            "open",
        ),
        (
            "Dockerfile",
            "FROM pytorch/pytorch:2.3.0-cuda12.1-cudnn8-runtime\nRUN bash ./run.sh\n",
            "ampere",
            {},
            "accepted",
        ),
        # A lost backslash.
        ("Dockerfile", "FROM python:3.11\nRUN apt-get update\n    && pip install torch\n", "new", {}, "refused"),
        ("Dockerfile", "FROM python:3.11\nRUN \\\\\n <<EOF\npip install torch\nEOF\n", "new", {}, "open"),
    ],
)
def test_questions_that_were_not_asked(name: str, text: str, card: str, place: dict[str, str], expected: str) -> None:
    assert verdict(text, card, name, **place) == expected


def test_what_does_not_serve_the_card_is_never_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever rule was to say so."""
    monkeypatch.setattr(wheels, "check", lambda subject: iter(()))
    assert verdict("pip install torch==2.0.1\n", "new") == "open"


def test_commands_for_windows_in_a_block_called_shell() -> None:
    text = f"```shell\n# a prompt\nset A=86\npip install torch --index-url {WHL}/cu126\n```\n"
    assert not reviewed(text, "ampere", "a.md", system="windows").remarks


# pip resolves one command or list as a whole: what fixes torch decides, wherever it stands.
@pytest.mark.parametrize("first", ["peft==0.18.*", "accelerate==1.13.*", "bitsandbytes==0.49.0", "timm==1.0.9", "peft"])
@pytest.mark.parametrize("fixes", ["xformers==0.0.28.post3", "torchvision==0.20.1", "torchvision==0.20.*"])
def test_what_fixes_torch_decides_wherever_it_stands(first: str, fixes: str) -> None:
    for text, name in ((f"{first}\n{fixes}\n", "requirements.txt"), (f"pip install {first} {fixes}\n", "a.sh")):
        answer = reviewed(text, "new", name, python="3.11")
        assert answer.refused and answer.torch == "2.5.1", (text, answer.torch)
        assert reviewed(text, "ampere", name, python="3.11").answered, text


def test_a_pin_that_fixes_no_torch_leaves_a_list_that_was_not_read_open() -> None:
    assert verdict("pip install peft==0.18.1 -r not_here.txt\n", "pascal") == "open"


def _beside(folder: Path, script: str, name: str = "a.sh", **others: str) -> Reviewed:
    for own, text in {**others, name: script}.items():
        (folder / own.replace("_", ".")).write_text(text, newline="\n")
    return review_script(load(folder / name), question_from_options((CARD["ampere"],)))


PIPS = f"name: e\n{CONDA}  - pip:\n    - flash-attn\n"


@pytest.mark.parametrize("command", ["conda env create", "mamba env update", "conda env update -n base"])
@pytest.mark.parametrize("file", ["a.sh", "Dockerfile"])
def test_a_followed_environment_brings_its_own_findings(tmp_path: Path, command: str, file: str) -> None:
    start = "FROM condaforge/miniforge3\nCOPY environment.yml .\nRUN " if file == "Dockerfile" else ""
    answer = _beside(tmp_path, f"{start}{command} -f environment.yml\n", file, environment_yml=PIPS)
    alone = review_script(load(tmp_path / "environment.yml"))
    assert "isolation" in {each.id for each in alone.remarks}
    # Of Miniforge it is no more a question which MKL is taken.
    assert {each.id for each in alone.remarks} - {"mkl-not-held"} <= {each.id for each in answer.remarks}
    assert answer.torch == "2.1.0"


PROJECT = '[project]\nname = "x"\nversion = "1"\ndependencies = ["numpy>=2.2.4", "torch==2.6.0"]\n'
CU126 = (
    '[tool.uv.sources]\ntorch = [{ index = "a" }]\n[[tool.uv.index]]\n'
    f'name = "a"\nurl = "{WHL}/cu126"\nexplicit = true\n'
)


@pytest.mark.parametrize("command", ["pip install .", "pip install -e .", "uv pip install --system ."])
def test_a_project_replaces_the_torch_that_is_there(tmp_path: Path, command: str) -> None:
    start = f"FROM pytorch/pytorch:2.1.2-cuda12.1-cudnn8-runtime\nCOPY . .\nRUN {command}\n"
    answer = _beside(tmp_path, start, "Dockerfile", pyproject_toml=PROJECT + CU126)
    assert (answer.torch, [each.id for each in answer.remarks]) == ("2.6.0", [])
    line = "cu126" if command.startswith("uv") else "cu124"  # pip does not read uv's tables
    assert any(f"torch 2.6.0+{line}" in each for each in answer.settled)


@pytest.mark.parametrize(
    ("command", "table", "isolated"),
    [
        ("uv sync", "", True),
        ("uv sync", '[tool.uv]\nno-build-isolation-package = ["flash-attn"]\n', False),
        ("uv sync", '[tool.uv.extra-build-dependencies]\nflash-attn = ["torch"]\n', False),
        ("pip install .", '[tool.uv]\nno-build-isolation-package = ["flash-attn"]\n', True),
        ("pip install --no-build-isolation -e .", "", False),
    ],
)
def test_what_a_project_asks_for_is_built_as_the_command_says(
    tmp_path: Path, command: str, table: str, isolated: bool
) -> None:
    asks = '[project]\nname = "x"\nversion = "1"\ndependencies = ["torch==2.8.0", "flash-attn==2.8.3"]\n'
    answer = _beside(tmp_path, f"{command}\n", pyproject_toml=asks + table)
    assert ("isolation" in {each.id for each in answer.remarks}) == isolated


def test_the_index_of_the_command_is_that_of_the_project(tmp_path: Path) -> None:
    command = f"pip install . --extra-index-url {WHL}/cu118\n"
    assert any("2.6.0+cu118" in each for each in _beside(tmp_path, command, pyproject_toml=PROJECT).settled)


def test_a_package_of_a_followed_environment_may_name_its_channel(tmp_path: Path) -> None:
    own = "dependencies:\n  - python=3.10\n  - {}pytorch=2.5.1\n  - {}pytorch-cuda=12.4\n"
    # conda asks a channel that one package names for all of them (channels_from_specs of conda-libmamba-solver).
    for torch, cuda, found in (("pytorch::", "", []), ("", "pytorch::", []), ("", "", ["conda-channel-missing"])):
        answer = _beside(tmp_path, "conda env create -f environment.yml\n", environment_yml=own.format(torch, cuda))
        assert [each.id for each in answer.remarks] == found


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("pip install --no-build-isolation torch==2.5.1 flash-attn", "refused"),
        ("uv pip install --system --no-build-isolation flash-attn torch==2.5.1", "refused"),
        ("pip install torch==2.5.1 flash-attn", "refused"),  # this pip isolates no setup.py
        ("pip install torch==2.5.1 && pip install --no-build-isolation flash-attn==2.7.4.post1", "accepted"),
    ],
)
def test_one_command_builds_an_extension_before_it_installs_torch(line: str, expected: str) -> None:
    image = "FROM nvidia/cuda:12.4.1-devel-ubuntu22.04\nRUN apt-get update && apt-get install -y python3-pip\n"
    assert verdict(f"{image}ENV TORCH_CUDA_ARCH_LIST=8.0\nRUN {line}\n", "ampere-80", "Dockerfile") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("module load PyTorch/2.1.2-foss-2023a-CUDA-12.1.1\npip3 install torchvision\n", "refused"),
        (f"ml PyTorch/2.1.2-foss-2023a-CUDA-12.1.1\npip install torchvision --index-url {WHL}/cu126\n", "refused"),
        ("module load PyTorch/2.1.2-foss-2023a-CUDA-12.1.1\npip install --no-deps torchvision\n", "open"),
        ("module load PyTorch/2.1.2-foss-2023a-CUDA-12.1.1\npip install torchvision==0.16.2\n", "open"),
        ("module load PyTorch/2.1.2-foss-2023a-CUDA-12.1.1\npip install lightning\n", "open"),
        ("module load pytorch/2.3\npip install torchvision\n", "open"),
        ("module load py-torch/2.3.1\npip install -U torchvision\n", "open"),
        ("module load pytorch\npip install torchvision\n", "open"),
        ("module spider PyTorch/2.1.2-foss-2023a-CUDA-12.1.1\npip install torchvision\n", "accepted"),
        ("module load PyTorch/2.1.2-foss-2023a-CUDA-12.1.1\n", "open"),
    ],
)
def test_the_torch_of_a_module_is_there_before_pip(text: str, expected: str) -> None:
    assert verdict(text, "ampere", driver="580.65.06") == expected


def test_what_replaces_the_torch_of_a_module_is_told_by_the_module() -> None:
    text = "module load PyTorch/2.1.2-foss-2023a-CUDA-12.1.1\npip3 install torchvision\n"
    (remark,) = reviewed(text, "ampere", driver="580.65.06").remarks
    assert (remark.id, remark.line) == ("torch-of-module-replaced", 2)
    assert "torch 2.1.2+cu121 of the module of line 1" in remark.found
    assert "load the module of torchvision" in remark.why
    text = "module load pytorch/1.12-cuda11.3\npip install pandas\n"
    assert verdict(text, "new") == "refused", "CUDA 11.3 compiles for no such card"


OWN = (
    "channels: [pytorch, conda-forge, defaults]\ndependencies:\n  - python=3.9\n  - pytorch=1.11.0\n"
    "  - cudatoolkit=11.3\n"
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (OWN, {"mkl-too-new"}),
        (OWN.replace("1.11.0", "2.4.1").replace("cudatoolkit=11.3", "pytorch-cuda=12.1"), set()),
        (OWN + "  - mkl=2024.0\n", set()),
        (OWN + "  - mkl<2024.1\n", set()),
        (OWN + "  - mkl>=2020\n", {"mkl-too-new"}),
        (OWN.replace("pytorch, conda-forge, defaults", "pytorch, defaults"), set()),
        (OWN.replace("pytorch, conda-forge, defaults", "defaults, conda-forge, pytorch"), set()),
        (OWN.replace("pytorch, conda-forge, defaults", "conda-forge"), set()),
        (OWN + "  - mkl=2023\n  - torchvision=0.12.0\n", {"numpy-two"}),
        (OWN + "  - mkl=2023\n  - torchvision=0.12.0\n  - numpy=1.26\n", set()),
        (OWN + "  - mkl=2023\n  - torchvision=0.12.0\n  - scikit-learn=1.2\n", set()),
        (OWN.replace("pytorch, conda-forge, defaults", "conda-forge") + "  - torchvision=0.12.0\n", set()),
    ],
)
def test_what_pytorchs_own_conda_builds_do_not_hold_back(text: str, found: set[str]) -> None:
    told = {each.id for each in reviewed(text, "ampere", "environment.yml").remarks}
    assert told & {"mkl-too-new", "numpy-two"} == found


EXTRAS = f"""[project]
name = "a"
requires-python = ">=3.10"
dependencies = []

[project.optional-dependencies]
gpu = ["torch==2.5.1+cu124"]
cpu = ["torch==2.5.1+cpu"]

[tool.uv.sources]
torch = [
  {{ index = "gpu", marker = "extra == 'gpu'" }},
  {{ index = "cpu", marker = "extra != 'gpu' and extra == 'cpu'" }},
]

[[tool.uv.index]]
name = "gpu"
url = "{WHL}/cu124"
explicit = true

[[tool.uv.index]]
name = "cpu"
url = "{WHL}/cpu"
explicit = true
"""
APART = '[tool.uv]\nconflicts = [[{ extra = "gpu" }, { extra = "cpu" }]]\n\n[tool.uv.sources]'


def test_the_torch_of_an_extra_is_torch_that_is_installed() -> None:
    text = EXTRAS.replace("[tool.uv.sources]", APART)
    assert verdict(text, "ampere", "pyproject.toml") == "accepted"
    assert verdict(text, "new", "pyproject.toml") == "refused"
    assert verdict(text.replace("cu124", "cu121"), "ampere", "pyproject.toml") == "accepted"
    assert verdict(text.replace('"cpu"]', '"none"]').replace("2.5.1", "2.9.9"), "ampere", "pyproject.toml") == "refused"


def test_extras_that_uv_cannot_lock() -> None:
    (remark,) = reviewed(EXTRAS, "ampere", "pyproject.toml").remarks
    assert remark.id == "extras-contradict" and remark.line == 8
    assert "gpu asks for torch 2.5.1+cu124, cpu for 2.5.1+cpu" in remark.found
    alone = EXTRAS.replace("2.5.1+cpu", "2.5.1").replace("2.5.1+cu124", "2.5.1")
    assert not reviewed(alone, "ampere", "pyproject.toml").remarks
