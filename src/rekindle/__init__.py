"""Rekindle: PyTorch for the GPUs the official wheels left behind, and for the ones they have not reached yet.

`from rekindle import plan, inspect, diagnose, doctor, …` are the functions of `rekindle.api`. They are looked up when
they are asked for, so that importing the package costs nothing.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rekindle.api import RekindleError, gpu, inspect, needs, plan

__version__ = "0.2.0.dev0"
__all__ = ["RekindleError", "__version__", "audit", "diagnose", "doctor", "gpu", "inspect", "needs", "plan", "review"]
_FUNCTIONS = frozenset(__all__) - {"__version__"}


class _Package(ModuleType):
    """`rekindle.diagnose` is the function, although a room of the package has the same name.

    Python binds a room to its name in the package when the room is first imported; that must not hide the function.
    """

    def __getattr__(self, name: str) -> Any:
        if name in _FUNCTIONS:
            from importlib import import_module

            return getattr(import_module("rekindle.api"), name)
        message = f"module 'rekindle' has no attribute {name!r}"
        raise AttributeError(message)

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _FUNCTIONS and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
