"""Why a lowered graph misses its limits, and the smallest set of nodes that must stay wide."""
