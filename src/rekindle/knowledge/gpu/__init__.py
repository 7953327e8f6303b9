"""Cards, chips, capabilities and drivers: look-ups beside the tables they read."""
