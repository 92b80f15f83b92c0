"""The two exporters of PyTorch, and the rule between them."""
