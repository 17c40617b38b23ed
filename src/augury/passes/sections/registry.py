"""The passes of all sections of a plan besides communication."""

from __future__ import annotations

from typing import Any

from augury.core.plan.plan import PlanSection
from augury.passes.sections.accumulate import ACCUMULATE
from augury.passes.sections.compression import COMPRESSION
from augury.passes.sections.fusion import FUSION
from augury.passes.sections.loader import LOADER
from augury.passes.sections.precision import PRECISION
from augury.passes.sections.recompute import RECOMPUTE
from augury.passes.sections.section_pass import SectionPass
from augury.passes.sections.sharding import SHARDING
from augury.passes.sections.threads import THREADS

SECTION_PASSES: dict[PlanSection, SectionPass[Any]] = {
    PlanSection.FUSION: FUSION,
    PlanSection.RECOMPUTE: RECOMPUTE,
    PlanSection.PRECISION: PRECISION,
    PlanSection.COMPRESSION: COMPRESSION,
    PlanSection.LOADER: LOADER,
    PlanSection.THREADS: THREADS,
    PlanSection.ACCUMULATE: ACCUMULATE,
    PlanSection.SHARDING: SHARDING,
}
"""Each pass takes the content of its section as parameters."""
