"""The recorder of TCP traffic: preloading its library, and packing its files."""
