from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

# The same examples on every machine, however slow: a failure is a fact, not a chance.
settings.register_profile(
    "augury",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("augury")

_SLOW = ("test_folding.py", "test_equivalence.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Thousands of random graphs come last: what breaks should show early."""
    items.sort(key=lambda item: item.path.name in _SLOW)
