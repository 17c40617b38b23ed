"""The suites of ``make validate``, in the order in which they run."""

from __future__ import annotations

from benchmarks.validate.coverage_suite import COVERAGE
from benchmarks.validate.diagnose_suite import DIAGNOSE
from benchmarks.validate.optimize_suite import OPTIMIZE
from benchmarks.validate.oracle_suite import ORACLE
from benchmarks.validate.policy_suite import SCHEDULE
from benchmarks.validate.suite import Suite
from benchmarks.validate.torch_suite import TORCH
from benchmarks.validate.trainers_suite import TRAINERS
from benchmarks.validate.wire_suite import WIRE

SUITES: tuple[Suite, ...] = (
    TORCH,
    WIRE,
    SCHEDULE,
    ORACLE,
    COVERAGE,
    TRAINERS,
    DIAGNOSE,
    OPTIMIZE,
)
