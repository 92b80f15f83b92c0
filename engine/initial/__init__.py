"""A first recipe for a model that nobody has described yet: tried, measured, written with its reasons."""
