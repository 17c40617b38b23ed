"""Applies the sections of a plan besides communication to training, one file per section."""
