"""What the wheel calls itself: release, CUDA, cuDNN, architectures."""

from __future__ import annotations

from rekindle.build.configure.request import BuildRequest


def wheel_version(request: BuildRequest) -> str:
    """`1.12.1+cu114.cudnn870.sm35`; `sm86ptx` where PTX goes with it. A person's own version stands as it is."""
    if request.version:
        return request.version
    base = str(request.release) if request.release else "0"
    return f"{base}+{local_version(request)}"


def local_version(request: BuildRequest) -> str:
    if request.cuda is None:
        return "cpu"
    parts = [f"cu{request.cuda.version.major}{request.cuda.version.minor}"]
    if request.cudnn and request.cudnn.version:
        parts.append("cudnn" + "".join(request.cudnn.version.text.split(".")[:3]))
    targets = request.gpu_targets
    with_ptx = {target.capability for target in targets if target.ptx}
    native = [target for target in targets if not target.ptx]
    parts += [f"{str(t).replace('_', '')}{'ptx' if t.capability in with_ptx else ''}" for t in native]
    return ".".join(parts)
