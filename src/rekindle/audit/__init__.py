"""The compiled modules of an environment against its cards, torch, Python and NumPy."""
