"""The NVIDIA cards and their driver."""
