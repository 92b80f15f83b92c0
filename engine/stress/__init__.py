"""Hard inputs for the graph at hand: what the graph contains decides which are made."""
