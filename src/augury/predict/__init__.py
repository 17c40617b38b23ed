"""The prediction layer: changes in words, predictions of changes, plans made and judged."""
