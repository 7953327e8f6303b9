"""Somebody's build script held against what is known."""
