"""The programs that a build will really use, asked the way the build will call them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rekindle.build.configure import tools
from rekindle.build.configure.request import BuildRequest, Compiler, Cuda
from rekindle.core.version import Version

# As nvcc 11.8 does on a system whose only compiler is a private one, which nobody's PATH names.
NVCC = """\
#!/bin/sh
case "$*" in
  *"-ccbin {cxx}"*) ;;
  *) echo "gcc: No such file or directory" >&2; echo "nvcc fatal   : Failed to preprocess host" >&2; exit 1 ;;
esac
echo "#$ _HERE_={bin}" >&2
echo "#$ PATH={bin}:/usr/bin" >&2
echo '#$ ptxas -arch=sm_35 -m64 "x.ptx"  -o "x.cubin"' >&2
"""
PTXAS = '#!/bin/sh\necho "Cuda compilation tools, release 11.8, V11.8.89"\n'


@pytest.mark.skipif(os.name == "nt", reason="shell scripts stand for the programs")
def test_nvcc_is_asked_for_its_ptxas_with_the_compiler_of_the_build(tmp_path: Path) -> None:
    cxx = str(tmp_path / "kits" / "gcc-11.3.0" / "bin" / "g++-11")
    for name, text in (("nvcc", NVCC.format(cxx=cxx, bin=tmp_path)), ("ptxas", PTXAS)):
        (tmp_path / name).write_text(text, encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    request = BuildRequest(
        source="s",
        system="linux",
        arch="x86_64",
        python="python3",
        compiler=Compiler(kind="gcc", cxx=cxx, c=cxx, cuda_host=cxx),
        cuda=Cuda(root=str(tmp_path), nvcc=str(tmp_path / "nvcc"), version=Version("11.8.89")),
    )
    found = tools._ptxas(request, {"PATH": os.defpath})
    assert found is not None and found.version == Version("11.8.89") and found.path == str(tmp_path / "ptxas")
