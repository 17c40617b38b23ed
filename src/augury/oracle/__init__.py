"""Time and memory of every parallel strategy, from the model and the cluster alone."""
