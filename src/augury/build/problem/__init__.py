"""Scheduling problems stated by recorded runs and by synthetic graphs."""
