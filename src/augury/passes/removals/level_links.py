"""Pass for slow links that are as fast as a typical link."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from augury.costs.links import Links
from augury.passes.bandwidth import EXPANDED
from augury.passes.protocol import Changed, ErrorModel, Scene, changed

NO_LINKS = "single links are known to fine replays only"


@dataclass(frozen=True, slots=True)
class LevelLinks:
    """Limits the time per byte of each link and of each path between two ranks to the typical
    one."""

    name = "level-links"
    plan_section = None
    advice = "Check the cable, the port and its speed, and other traffic of that host."

    def applies(self, scene: Scene) -> list[str]:
        if scene.is_expanded:
            return [EXPANDED]
        return [] if scene.links is not None else [NO_LINKS]

    def apply(self, scene: Scene, _parameters: None = None) -> Changed:
        assert scene.links is not None
        return changed(scene, replace(scene, links=levelled(scene.links)))

    def error_model(self, _parameters: None = None) -> ErrorModel:
        return ErrorModel(0.015)


LEVEL_LINKS = LevelLinks()


def levelled(links: Links) -> Links:
    """Beside a slow link the others have pauses, and bursts after them. Without it they have
    neither; but the slow one does not become slower."""
    level = replace(
        links,
        out=np.minimum(links.out, np.median(links.out)),
        into=np.minimum(links.into, np.median(links.into)),
        path=np.minimum(links.path, 1.0),
    )
    burst = min(links.burst, float((links.ns_per_byte / level.ns_per_byte).max()))
    return replace(level, out=level.out * burst, into=level.into * burst, stall=1.0)
