"""The values that several rooms share, and nothing else."""
