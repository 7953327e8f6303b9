"""Says what a Python is. Run by the interpreter in question, which may be as old as 3.6, so nothing here is newer."""

import sys


def main() -> None:
    here = __file__.replace("\\", "/").rpartition("/")[0]
    # What lies beside this script is not for the Python that runs it.
    sys.path = [folder for folder in sys.path if folder and folder.replace("\\", "/") != here]

    import json
    import os
    import site
    import sysconfig

    places = sysconfig.get_paths()
    folders = []
    for folder in (places.get("platlib"), places.get("purelib"), site.ENABLE_USER_SITE and site.getusersitepackages()):
        if folder and folder not in folders:
            folders.append(folder)
    answer = {
        "version": ".".join(str(part) for part in sys.version_info[:3]),
        "implementation": sys.implementation.name,
        "bits": 64 if sys.maxsize > 2**32 else 32,
        "executable": sys.executable,
        "prefix": sys.prefix,
        "base_prefix": getattr(sys, "base_prefix", sys.prefix),
        "free_threaded": "t" in getattr(sys, "abiflags", ""),
        "conda": os.path.isdir(os.path.join(sys.prefix, "conda-meta")),  # noqa: PTH112, PTH118 - pathlib is slow to import
        "site_packages": folders,
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
