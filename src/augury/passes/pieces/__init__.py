"""Recorded steps with the pieces of an order in place of their collectives."""
