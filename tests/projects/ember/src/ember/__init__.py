"""A small package with a C++ library."""
