"""How many random examples a property is tried on."""

from __future__ import annotations

from hypothesis import settings

_MIN_EXAMPLES = 25


def campaign(num_examples: int) -> settings:
    """A quarter of these examples in `make test`; ten times as many under the profile `soak`."""
    if settings.get_current_profile_name() == "soak":
        return settings(max_examples=10 * num_examples)
    return settings(max_examples=max(min(num_examples, _MIN_EXAMPLES), num_examples // 4))
