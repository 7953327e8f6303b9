"""The type of each table that an update may bring: what a row is held against before it is taken."""

from __future__ import annotations

from typing import Any

from rekindle.core.errors import BadInput


def kind_of(relative: str) -> Any:
    """The type that `gpu/gpus.json` is read as; an error for a table that no update may change."""
    found = updatable().get(relative)
    if found is None:
        message = f"`{relative}` is not a table that an update may bring"
        raise BadInput(message, hint="updates bring " + ", ".join(sorted(updatable())))
    return found


def updatable() -> dict[str, Any]:
    from rekindle.knowledge.builds import compile_costs, sweeps
    from rekindle.knowledge.cuda import cudnn, host_compilers, libraries, library_packages, toolchains, toolkits
    from rekindle.knowledge.gpu import driver_lists, gpus
    from rekindle.knowledge.torch import companions, options, releases, torch_wheels, wheel_platforms
    from rekindle.knowledge.torch.other_builds import CommunityWheel, CondaBuild

    rows: dict[str, Any] = {
        "builds/sweeps.json": sweeps.Sweep,
        "cuda/dlls.json": library_packages.DllWheel,
        "cuda/linux_libraries.json": library_packages.DllWheel,
        "cuda/mathlibs.json": cudnn.MathLibrary,
        "cuda/redistrib_lists.json": toolchains.RedistribList,
        "cuda/system_symbols.json": libraries._Symbols,
        "cuda/toolkit_packages.json": library_packages.ToolkitPackages,
        "cuda/toolkits.json": toolkits.Toolkit,
        "gpu/chips.json": gpus.Chip,
        "gpu/driver_lists.json": driver_lists.ListedCard,
        "gpu/gpus.json": gpus.Gpu,
        "torch/community_wheels.toml": CommunityWheel,
        "torch/companions.json": companions.Companion,
        "torch/conda_forge.json": CondaBuild,
        "torch/torch_options.json": options.Option,
        "torch/torch_releases.json": releases.TorchRelease,
        "torch/torch_wheels.json": torch_wheels.TorchWheel,
        "torch/torch_wheels_aarch64.json": torch_wheels.TorchWheel,
        "torch/upstream_builds.json": releases.UpstreamBuild,
        "torch/wheel_platforms.json": wheel_platforms.WheelPlatform,
    }
    found: dict[str, Any] = {name: _lists_of(kind) for name, kind in rows.items()}
    return found | {
        "builds/compile_memory.json": compile_costs._Table,
        "builds/compile_times.json": compile_costs._TimesTable,
        "cuda/cudnn.json": cudnn._Tables,
        "cuda/host_compilers.json": host_compilers._Tables,
    }


def _lists_of(row: Any) -> Any:
    return dict.__class_getitem__((str, tuple.__class_getitem__((row, ...))))
