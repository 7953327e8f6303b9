"""A small package with a C++ and a CUDA library."""
