"""The replay engine: simulates a Graph and returns its Timeline (``augury.replay(graph)``)."""

from augury.core.callable_package import make_callable

make_callable(__name__, "augury.replay.run:replay")
