"""The engine: replays a Graph into a Timeline. ``augury.replay(graph)`` calls it."""
