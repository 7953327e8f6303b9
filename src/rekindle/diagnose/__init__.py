"""A log to its cause and its fix; a hand-made script to what is wrong with it."""
