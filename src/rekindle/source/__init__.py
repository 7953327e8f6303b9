"""PyTorch's source tree: how it is brought here whole, and how it is patched and unpatched."""
