"""Several hosts and a real network on one machine, and real training to run on them."""
