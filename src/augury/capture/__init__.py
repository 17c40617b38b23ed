"""Records real training from inside its own processes. Light, and never in training's way."""
