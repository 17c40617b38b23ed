"""The demonstration: the whole loop on real training, or a replay of a synthetic run."""
