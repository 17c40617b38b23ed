"""The page about one run: ``augury report RUN -o report.html``."""

from __future__ import annotations

from pathlib import Path

import msgspec

from augury.core.run_page import RunPage
from augury.report.page.document import write_document
from augury.report.page.sections.collectives import collective_section
from augury.report.page.sections.findings import findings_section
from augury.report.page.sections.layers import layer_section
from augury.report.page.sections.links import link_section
from augury.report.page.sections.measurement import measurement_section
from augury.report.page.sections.memory import memory_section
from augury.report.page.sections.policies import policy_section
from augury.report.page.sections.ranks import rank_section
from augury.report.page.sections.summary import summary_section
from augury.report.page.sections.timeline import TimelineContent, timeline_section
from augury.report.page.sections.warnings import warning_section
from augury.report.page.sections.what_ifs import what_if_section


class WrittenPage(msgspec.Struct, frozen=True, kw_only=True):
    """A written page; its timeline shows ``num_timeline_ops`` operations and events as
    ``num_slices`` slices."""

    size_bytes: int
    num_slices: int
    num_timeline_ops: int


def write_run_page(page: RunPage, path: Path, *, force: bool = False) -> WrittenPage:
    timeline = timeline_section(page)
    found = [
        summary_section(page),
        findings_section(page),
        timeline,
        rank_section(page),
        layer_section(page),
        collective_section(page),
        link_section(page),
        memory_section(page),
        what_if_section(page),
        None if page.schedule is None else policy_section(page.schedule),
        warning_section(page.diagnosis.ledger if page.diagnosis else page.replay.ledger),
        measurement_section(page),
    ]
    sections = [one for one in found if one is not None]
    size_bytes = write_document(page.name, sections, path, force=force)
    assert isinstance(timeline.content, TimelineContent)
    packed = timeline.content.packed
    return WrittenPage(
        size_bytes=size_bytes, num_slices=packed.num_slices, num_timeline_ops=packed.num_ops
    )
