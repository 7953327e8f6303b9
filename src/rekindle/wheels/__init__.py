"""Wheels: what is in them, what they need to load, repair, verify, shelf."""
