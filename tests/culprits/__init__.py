"""Models with nodes that a narrow type breaks, for the diagnosis: each must be named, and nothing else."""
