"""Renderers of results: terminal, JSON, Perfetto. They show; they never compute."""
