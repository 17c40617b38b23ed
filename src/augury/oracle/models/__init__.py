"""Built-in networks."""
