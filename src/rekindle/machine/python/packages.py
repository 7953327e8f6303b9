"""The Pythons, and what lies among their packages: torch, and pip's cuDNN and CUDA."""

from __future__ import annotations

from rekindle.machine.host import CouldNotRead, Run
from rekindle.machine.model import Environments, FoundTorch
from rekindle.machine.python import interpreters


def probe(run: Run) -> Environments:
    found = interpreters.probe(run)
    # Imported while other programs are waited for: the interpreters had to be started before anything else.
    from rekindle.machine.python import torch_installed
    from rekindle.machine.toolchain import cudnn, toolkits

    target = found[0] if found else None
    torch: FoundTorch | None
    try:
        torch = torch_installed.probe(run, target)
    except CouldNotRead:
        torch = None
    folders = target.site_packages if target else ()
    return Environments(
        pythons=found,
        torch=torch,
        cudnns=cudnn.probe(run, folders),
        toolkits=toolkits.in_packages(run, folders),
    )
