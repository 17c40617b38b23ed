"""Passes that do to a graph what the sections of a plan do to the training, one file each."""
