"""Rekindle: PyTorch for the GPUs the official wheels left behind, and for the ones they have not reached yet."""

__version__ = "0.1.0"
