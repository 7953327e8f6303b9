import torch  # noqa: F401 - its libraries must be loaded before the extension's

from scale_add._C import scale_add

__all__ = ["scale_add"]
