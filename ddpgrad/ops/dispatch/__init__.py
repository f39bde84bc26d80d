"""From the declaration of an op to its call, its node in the graph, and its methods."""
