"""What is true of GPUs, drivers, toolkits, compilers and PyTorch releases: data files and typed, sourced look-ups."""
