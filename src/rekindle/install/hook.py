"""Settings that must be in force before a program uses torch, put where nobody has to edit the program.

A `.pth` file in site-packages is read by every start of that Python; it imports a small module, which waits for `torch`
to be imported and then runs the route's lines. Nothing is imported or changed in a program that never imports torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rekindle.core import files
from rekindle.model.environment import Environment
from rekindle.stack.route import RuntimeSetting

NAME = "rekindle_settings"

_MODULE = '''"""Written by `rekindle install`, removed by its `--undo`. Runs once, right after torch is imported."""

import importlib.abc
import importlib.util
import sys


def apply():
    import torch

{lines}


class AfterTorch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            apply()

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, AfterTorch())
'''


def hook_files(environment: Environment) -> tuple[Path, Path]:
    """The `.pth` file and the module it imports."""
    return environment.site / f"{NAME}.pth", environment.site / f"{NAME}.py"


def write(environment: Environment, settings: Sequence[RuntimeSetting]) -> Path:
    """Put the settings in place; what an earlier install put there is replaced."""
    pth, module = hook_files(environment)
    lines = "\n".join(f"    {setting.code}  # {setting.why}" for setting in settings)
    files.write_text(module, _MODULE.replace("{lines}", lines))
    files.write_text(pth, f"import {NAME}\n")
    return pth
