"""Cost models of compute and network."""
