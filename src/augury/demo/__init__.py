"""The demonstration: the whole loop on real training, or the diagnosis of a synthetic run."""

from augury.core.callable_package import make_callable

make_callable(__name__, "augury.demo.loop:run_demo")
