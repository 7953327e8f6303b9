"""A Linux extension that links Debian's libraries, repaired, in a Debian 12 that has python3 and nothing else."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sysconfig
import zipfile
from pathlib import Path

import pytest

from rekindle.wheels.repair import repair
from support import small_wheels
from support.artefacts import unverified
from support.debians import minimal_debian

SOURCE = """
#define Py_LIMITED_API 0x03080000
#include <Python.h>
char *curl_version(void);
static PyObject *version(PyObject *self, PyObject *args) { return PyUnicode_FromString(curl_version()); }
static PyMethodDef methods[] = {{"version", version, METH_NOARGS, ""}, {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_web", "", -1, methods};
PyMODINIT_FUNC PyInit__web(void) { return PyModule_Create(&module); }
"""


@pytest.fixture(scope="module")
def minimal() -> Path:
    """A minimal Debian 12 with python3, made once."""
    return minimal_debian()


def _import(root: Path, site: str) -> subprocess.CompletedProcess[str]:
    code = f"import sys; sys.path.insert(0, '/{site}'); from web import _web; print(_web.version())"
    return subprocess.run(
        ["chroot", str(root), "/usr/bin/python3", "-c", code], capture_output=True, text=True, check=False, timeout=120
    )


def test_an_extension_imports_where_its_libraries_are_not_installed(minimal: Path, tmp_path: Path) -> None:
    curl = Path(f"/usr/lib/{platform.machine()}-linux-gnu/libcurl.so.4")
    if not curl.exists() or not shutil.which("gcc"):
        unverified("libcurl.so.4 and gcc are not both installed here")
    (tmp_path / "web.c").write_text(SOURCE, encoding="utf-8")
    module = tmp_path / "_web.abi3.so"
    include = sysconfig.get_paths()["include"]
    build = ["gcc", "-shared", "-fPIC", f"-I{include}", "-o", str(module), str(tmp_path / "web.c"), str(curl)]
    subprocess.run(build, check=True, timeout=120)
    tag = f"cp38-abi3-linux_{platform.machine()}"
    files = {
        "web/__init__.py": b"",
        "web/_web.abi3.so": module.read_bytes(),
        "web-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: web\nVersion: 1.0\n",
        "web-1.0.dist-info/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(),
    }
    wheel = small_wheels.make(tmp_path, files, name=f"web-1.0-{tag}.whl")
    for site, source in (("site-before", wheel), ("site-after", None)):
        if source is None:
            done = repair.repair(wheel, tmp_path / "out", wish=repair.RepairWish())
            assert done.output is not None
            source = done.output
            brought = {item.member for item in done.added}
            assert "web.libs/libcurl.so.4" in brought and "web.libs/libnghttp2.so.14" in brought
            assert not any("/libc.so" in name or "libpthread" in name or "libcuda.so" in name for name in brought)
            assert any("glibc" in item.found for item in done.findings)
        shutil.rmtree(minimal / site, ignore_errors=True)
        with zipfile.ZipFile(source) as zipped:
            zipped.extractall(minimal / site)
    before, after = _import(minimal, "site-before"), _import(minimal, "site-after")
    assert "libcurl.so.4: cannot open shared object file" in before.stderr
    assert after.returncode == 0, after.stderr
    assert after.stdout.startswith("libcurl/")
