"""The governor of a build: as many compiles at a time as there are cores, and no more than memory has room for.

Ninja asks for job tokens, every compiler stands behind a gate, and the gate asks here before it lets the compiler in.
"""
