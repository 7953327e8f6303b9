"""Checks over a machine and its verdict; the block to paste; why it works in one shell and not in the other."""
