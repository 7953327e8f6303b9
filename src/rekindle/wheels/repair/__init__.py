"""A wheel changed so that it loads on a machine with only the driver."""
