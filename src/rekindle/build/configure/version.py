"""What a wheel that is built calls itself."""

from __future__ import annotations

from rekindle.build.configure.request import BuildRequest
from rekindle.knowledge.builds.profiles import cpu_level
from rekindle.model.cuda_line import CudaLine


def wheel_version(request: BuildRequest) -> str:
    """`1.12.1+cu114.cudnn870.sm35`; `sm86ptx` where PTX goes with it. A person's own version stands as it is."""
    if request.version:
        return request.version
    base = str(request.release) if request.release else "0"
    return f"{base}+{local_version(request)}"


def local_version(request: BuildRequest) -> str:
    if request.cuda is None:
        return "cpu"
    # The base's packages are those of its own line, whatever toolkit compiled the new half.
    parts = [CudaLine(request.base.cuda if request.base else request.cuda.version).name]
    if request.cudnn and request.cudnn.version:
        parts.append("cudnn" + "".join(request.cudnn.version.text.split(".")[:3]))
    targets = request.gpu_targets
    with_ptx = {target.capability for target in targets if target.ptx}
    native = [target for target in targets if not target.ptx]
    parts += [f"{str(t).replace('_', '')}{'ptx' if t.capability in with_ptx else ''}" for t in native]
    if cpu_level(request.profile, request.arch) == "v1":
        # The usual floor is AVX; a wheel for older processors says so, as a label of the shelf does.
        parts.append("x86v1")
    return ".".join(parts)
