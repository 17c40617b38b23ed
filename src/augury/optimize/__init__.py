"""The search over combinations of changes to a training run."""
