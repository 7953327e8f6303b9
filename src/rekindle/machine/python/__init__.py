"""Pythons, their environments and the torch in them."""
