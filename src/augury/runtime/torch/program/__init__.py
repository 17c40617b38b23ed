"""The PyTorch program that a plan is applied to: its parameters, hooks and accesses."""
