"""A build script to the faults in it."""
