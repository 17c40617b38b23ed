"""``make validate``: predictions beside measurements of real training."""
