"""Q/DQ written into a graph: which scales, which weights, and where the data for them comes from."""
