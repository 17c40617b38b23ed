"""Communication schemes as operations of a graph, one file per scheme."""
