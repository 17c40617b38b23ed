"""``make validate``: predictions compared with measurements of real training."""
