"""Precision written into the graph: selectors, lowering to FP16 or BF16, and the rehearsal on CPU."""
