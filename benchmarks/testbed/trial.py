"""Whether the runtime tries a plan in the job itself before it follows it."""

from __future__ import annotations

import inspect

import augury


def has_trial() -> bool:
    return "trial" in inspect.signature(augury.apply).parameters
