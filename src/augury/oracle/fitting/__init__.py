"""Corrections of the closed forms, fitted to measurements, and their validation."""
