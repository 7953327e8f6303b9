"""Builds the way PyTorch's setup.py does: CMake in `build`, told by the environment, installed into the package."""

import os
import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.dist import Distribution

HERE = Path(__file__).resolve().parent
BUILD = HERE / "build"
CMAKE_ONLY = "--cmake-only" in sys.argv
sys.argv = [word for word in sys.argv if word != "--cmake-only"]


def architectures() -> str:
    listed = os.environ.get("TORCH_CUDA_ARCH_LIST", "")
    return ";".join(f"{part.replace('.', '')}-real" for part in listed.split(";") if part)


def generate() -> None:
    if (BUILD / "CMakeCache.txt").exists():
        return
    BUILD.mkdir(exist_ok=True)
    handed = {name: value for name, value in os.environ.items() if name.startswith(("USE_", "BUILD_", "CMAKE_"))}
    handed |= {"CMAKE_INSTALL_PREFIX": str(HERE), "CMAKE_CUDA_ARCHITECTURES": architectures()}
    arguments = [f"-D{name}={value}" for name, value in sorted(handed.items())]
    subprocess.check_call(["cmake", "-GNinja", "-DCMAKE_BUILD_TYPE=Release", *arguments, str(HERE)], cwd=BUILD)


class Binary(Distribution):
    def has_ext_modules(self) -> bool:
        return True


if __name__ == "__main__":
    generate()
    if CMAKE_ONLY:
        sys.exit()
    subprocess.check_call(["cmake", "--build", ".", "--target", "install"], cwd=BUILD)
    setup(
        name="spark",
        version=os.environ.get("SPARK_BUILD_VERSION", "1.0"),
        packages=["spark"],
        package_data={"spark": ["lib/*.so", "lib/*.dll"]},
        distclass=Binary,
    )
