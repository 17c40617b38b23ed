"""Networks that are built in."""
