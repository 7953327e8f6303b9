"""CUDA toolkits, host compilers, cuDNN and the libraries around them."""
