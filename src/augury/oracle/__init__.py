"""Time and memory of every parallel strategy, from the model and the cluster alone."""

from augury.core.callable_package import make_callable

make_callable(__name__, "augury.oracle.ask:ask_oracle")
