"""The typed options of the API are those of the functions that take them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from augury.api_options import (
    OptimizeOptions,
    OracleOptions,
    RunOptions,
    SynthOptions,
    ValidationOptions,
)
from augury.build.synthetic.job_options import make_synthetic_job
from augury.job import make_job
from augury.optimize.optimize_run import optimize
from augury.oracle.fitting.validation import validate_oracle
from augury.oracle.predict_strategies import predict_strategies


@pytest.mark.parametrize(
    ("options", "function", "given"),
    [
        (OptimizeOptions, optimize, set()),
        (OracleOptions, predict_strategies, set()),
        (ValidationOptions, validate_oracle, set()),
        (SynthOptions, make_synthetic_job, {"cluster"}),
        (RunOptions, make_job, {"out", "plan"}),
    ],
)
def test_options_are_those_of_the_function(
    options: type, function: Callable[..., Any], given: set[str]
) -> None:
    """``given``: keywords that the call itself passes."""
    taken = [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and name not in given
    ]
    assert list(options.__annotations__) == taken
