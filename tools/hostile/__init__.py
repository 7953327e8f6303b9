"""Structured hostile files: each is well formed enough to be believed, and wrong where it hurts."""
