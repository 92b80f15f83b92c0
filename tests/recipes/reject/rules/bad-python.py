import numpy as np


def apply(graph, match)
    graph.nodes.clear()
