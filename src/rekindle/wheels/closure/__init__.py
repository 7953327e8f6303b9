"""What a package needs to load, and whether it is there."""
