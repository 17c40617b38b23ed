"""Passes that remove one cause of lost time each; diagnosis counts their gains."""
