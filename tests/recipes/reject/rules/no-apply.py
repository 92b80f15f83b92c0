def rewrite(graph, match):
    graph.nodes.clear()
