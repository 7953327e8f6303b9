"""Build the small library with nvcc and pack it as a wheel: make.py NVCC FOLDER NAME [nvcc options]."""

import base64
import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).parent
INIT = "from pathlib import Path\n\nLIBRARY = str(Path(__file__).with_name('libsmall.so'))\n"


def build(nvcc: str, folder: Path, name: str, options: list[str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / f"{name}.so"
    command = [nvcc, "-shared", "-Xcompiler", "-fPIC", "-cudart", "shared", "-Wno-deprecated-gpu-targets", *options]
    subprocess.run([*command, "-o", str(library), str(HERE / "small.cu")], check=True)
    files = {
        "small/__init__.py": INIT.encode(),
        "small/libsmall.so": library.read_bytes(),
        "small-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: small\nVersion: 1.0\n",
        "small-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-any\n",
    }
    record = "".join(
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n"
        for path, data in files.items()
    )
    wheel = folder / name / "small-1.0-py3-none-any.whl"
    wheel.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(wheel, "w") as packed:
        for path, data in files.items():
            packed.writestr(path, data)
        packed.writestr("small-1.0.dist-info/RECORD", record + "small-1.0.dist-info/RECORD,,\n")
    return wheel


if __name__ == "__main__":
    print(build(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4:]))
