"""The same matrix for hosted runners and for Slurm: one job each, going on over time limits by the compile cache."""
