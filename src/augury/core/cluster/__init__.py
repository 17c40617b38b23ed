"""Devices, hosts and the levels of network between them: class, TOML files and presets."""
