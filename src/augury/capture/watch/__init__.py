"""Watches a long job: short windows without a profiler, and a line when their verdict changes."""
