"""The engine: replays a Graph into a Timeline. ``augury.replay(graph)`` calls it."""

from augury.core.callable_package import make_callable

make_callable(__name__, "augury.replay.run:replay")
