"""CUDA toolkits, cuDNN, compilers and programs on this machine."""
