"""Everything decided before the first compile: environment, options, tools, the check of what CMake made of it."""
