"""Rekindle: PyTorch for the GPUs the official wheels left behind, and for the ones they have not reached yet.

`from rekindle import plan, inspect, diagnose, doctor, …` are the functions of `rekindle.api`. They are looked up when
they are asked for, so that importing the package costs nothing.
"""

from __future__ import annotations

import sys
from types import ModuleType

# As that of `typing`, whose import takes a while in which nobody would catch Ctrl-C.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rekindle.api import RekindleError, audit, diagnose, doctor, gpu, inspect, needs, plan, review
    from rekindle.audit.answer import Audit
    from rekindle.diagnose.answer import Diagnosis
    from rekindle.diagnose.source import Diagnoses
    from rekindle.doctor.report import DoctorReport
    from rekindle.review.review import Review
    from rekindle.stack.card import CardAnswer
    from rekindle.stack.route import Verdict
    from rekindle.wheels.inspect.inspection import Inspection

__version__ = "0.2.0"
_ANSWERS = {
    "Audit": "rekindle.audit.answer",
    "CardAnswer": "rekindle.stack.card",
    "Diagnoses": "rekindle.diagnose.source",
    "Diagnosis": "rekindle.diagnose.answer",
    "DoctorReport": "rekindle.doctor.report",
    "Inspection": "rekindle.wheels.inspect.inspection",
    "Review": "rekindle.review.review",
    "Verdict": "rekindle.stack.route",
}
_FUNCTIONS = ("RekindleError", "audit", "diagnose", "doctor", "gpu", "inspect", "needs", "plan", "review")
_HOMES = {**_ANSWERS, **dict.fromkeys(_FUNCTIONS, "rekindle.api")}
__all__ = [
    "Audit", "CardAnswer", "Diagnoses", "Diagnosis", "DoctorReport", "Inspection", "RekindleError", "Review", "Verdict",
    "__version__", "audit", "diagnose", "doctor", "gpu", "inspect", "needs", "plan", "review",
]  # fmt: skip


class _Package(ModuleType):
    """`rekindle.diagnose` is the function, although a room of the package has the same name.

    Python binds a room to its name in the package when the room is first imported; that must not hide the function.
    """

    def __getattr__(self, name: str) -> Any:
        if name in _HOMES:
            from importlib import import_module

            return getattr(import_module(_HOMES[name]), name)
        message = f"module 'rekindle' has no attribute {name!r}"
        raise AttributeError(message)

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _FUNCTIONS and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
