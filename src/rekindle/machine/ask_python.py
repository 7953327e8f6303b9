"""Says what a Python is. Run by the interpreter in question, which may be as old as 3.6, so nothing here is newer."""

import sys

NAMES = (
    "pip setuptools wheel build numpy torch torchvision torchaudio cmake ninja mkl mkl-include mkl-static mkl-devel "
    "intel-openmp typing-extensions pyyaml packaging triton nvidia-cuda-nvcc nvidia-cudnn-cu11 nvidia-cudnn-cu12 "
    "nvidia-cudnn-cu13 astunparse requests jinja2 sympy filelock networkx six"
)


def main() -> None:
    sys.path = [folder for folder in sys.path if folder]  # a json.py in the working folder is not json

    import contextlib
    import json
    import site
    import struct
    import sysconfig
    from pathlib import Path

    found = {}
    with contextlib.suppress(ImportError):
        from importlib import metadata

        for name in NAMES.split():
            with contextlib.suppress(metadata.PackageNotFoundError):
                found[name] = metadata.version(name)
    here = sysconfig.get_paths()
    folders = []
    for folder in (here.get("platlib"), here.get("purelib"), site.ENABLE_USER_SITE and site.getusersitepackages()):
        if folder and folder not in folders:
            folders.append(folder)
    answer = {
        "version": ".".join(str(part) for part in sys.version_info[:3]),
        "implementation": sys.implementation.name,
        "bits": struct.calcsize("P") * 8,
        "executable": sys.executable,
        "prefix": sys.prefix,
        "base_prefix": getattr(sys, "base_prefix", sys.prefix),
        "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        "conda": Path(sys.prefix, "conda-meta").is_dir(),
        "site_packages": folders,
        "packages": found,
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
