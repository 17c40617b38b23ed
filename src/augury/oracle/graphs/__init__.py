"""The same strategies as Graphs: what devices do layer by layer, for the replay engine."""
