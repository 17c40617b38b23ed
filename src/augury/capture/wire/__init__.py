"""The wire recorder: preloading it, and packing its files."""
