r"""`rekindle install <portable folder>`: ComfyUI's folder with the embedded Python it comes with, changed and put back.

The interpreter is a real embedded CPython with its `._pth` file and pip; the wheels are small ones. Wine stands in for
Windows: it runs the interpreter, pip and the `.pth` hook as Windows does.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from support import small_wheels
from support.artefacts import unverified
from support.command import rekindle_command
from support.fatbins import container
from support.pace import seconds

TAG = f"cp{sys.version_info[0]}{sys.version_info[1]}"
KEPLER = container("sm_37", "sm_50", "sm_60") * 3
TORCH = b"""
class _Cudnn:
    enabled = True
class backends:
    cudnn = _Cudnn()
"""


@pytest.fixture
def portable(tmp_path: Path) -> Iterator[Path]:
    """`ComfyUI_windows_portable`, as its archive unpacks: an embedded Python beside the program."""
    top = tmp_path / "ComfyUI_windows_portable"
    inside = top / "python_embeded"
    here = Path(sys.base_prefix)
    number = f"{sys.version_info[0]}{sys.version_info[1]}"
    library = here / f"python{number}.zip"
    if not library.is_file():
        unverified("this Python does not come as an embeddable one: its library is not one file")
    inside.mkdir(parents=True)
    for path in here.iterdir():
        if path.suffix.lower() in (".exe", ".dll", ".pyd", ".zip"):
            shutil.copyfile(path, inside / path.name)
    pip = Path(__import__("pip").__file__).parent
    shutil.copytree(pip, inside / "Lib/site-packages/pip", ignore=shutil.ignore_patterns("__pycache__"))
    for info in pip.parent.glob("pip-*.dist-info"):
        shutil.copytree(info, inside / "Lib/site-packages" / info.name)
    lines = ("../ComfyUI", library.name, ".", "Lib\\site-packages", "import site")
    (inside / f"python{number}._pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (top / "ComfyUI").mkdir()
    (top / "ComfyUI" / "main.py").write_text("import torch\nprint(torch.backends.cudnn.enabled)\n", encoding="utf-8")
    yield top
    shutil.rmtree(top, ignore_errors=True)


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of small wheels that stands in for the index: the wanted ones, and newer ones to be tempted by."""
    folder = tmp_path / "wheels"
    for torch, vision, audio in (("2.7.1+cu118", "0.22.1+cu118", "2.7.1+cu118"), ("2.8.0", "0.23.0", "2.8.0")):
        code = {"torch/__init__.py": TORCH, "torch/lib/torch_cuda.fatbin": KEPLER}
        code["torch/version.py"] = f"__version__ = '{torch}'\ncuda = '11.8'\n".encode()
        _wheel(folder, "torch", torch, code, "")
        _wheel(folder, "torchvision", vision, {"torchvision/__init__.py": b""}, f"Requires-Dist: torch=={torch}\n")
        _wheel(folder, "torchaudio", audio, {"torchaudio/__init__.py": b""}, f"Requires-Dist: torch=={torch}\n")
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": folder.as_uri()}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PIP_CONFIG_FILE", raising=False)
    return folder


def test_a_portable_folder_is_changed_survives_its_update_and_is_put_back(portable: Path, house: Path) -> None:
    before = _everything(portable)
    asked = ("--gpu", "Tesla K80", "--torch", "2.7.1", "--prefer", "quickest")
    seen = rekindle_command("install", str(portable), *asked)
    assert seen.code == 0, seen.err + seen.out
    assert "is for the Python in `" in seen.err
    assert "ComfyUI_windows_portable\\python_embeded\\python.exe`" in seen.err
    assert "ComfyUI portable folder" in seen.err
    # Its download for older cards is made with cu126, which begins with Maxwell.
    assert "nvidia_cu126" not in seen.err

    # ComfyUI's own start: nobody has edited its program, and cuDNN is off, for it has no code for the card.
    assert _python(portable, "-s", "ComfyUI\\main.py") == "False"
    # Its update script installs its requirements again, and would take the newer torch.
    _python(portable, "-s", "-m", "pip", "install", "-q", "-U", "torch", "torchvision", "torchaudio")
    assert _python(portable, "-s", "-c", "import torch.version as v; print(v.__version__)") == "2.7.1+cu118"

    undone = rekindle_command("install", str(portable), "--undo")
    assert undone.code == 0, undone.err
    assert _everything(portable) == before


def _python(portable: Path, *words: str) -> str:
    program = portable / "python_embeded" / "python.exe"
    done = subprocess.run(
        [program, *words], cwd=portable, capture_output=True, text=True, timeout=seconds(300), check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def _wheel(folder: Path, name: str, version: str, files: Mapping[str, bytes], extra: str) -> None:
    info = f"{name}-{version}.dist-info"
    about = f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\nTag: {TAG}-{TAG}-win_amd64\n"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{extra}"
    whole = {**files, f"{info}/METADATA": metadata.encode(), f"{info}/WHEEL": about.encode()}
    small_wheels.make(folder, whole, name=f"{name}-{version}-{TAG}-{TAG}-win_amd64.whl")


def _everything(folder: Path) -> dict[str, bytes]:
    """Every file with its bytes; compiled copies come and go by themselves."""
    files = [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files if path.name != "lock"}
