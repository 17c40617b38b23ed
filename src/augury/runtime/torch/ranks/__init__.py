"""Communication among ranks about a plan: agreement, control messages, counted exchanges."""
