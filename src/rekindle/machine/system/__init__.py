"""Memory, disks, variables, and what only Windows answers."""
