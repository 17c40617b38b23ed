"""The status of a plan as the recorder writes it."""

from __future__ import annotations

from typing import Any

DIGEST = "ab" * 32
PLAN: dict[str, Any] = {
    "digest": DIGEST,
    "mode": "planned",
    "is_followed": True,
    "from_step": 90,
    "reason": None,
    "is_on_trial": False,
    "has_trial": True,
    "trials": [
        {
            "first_step": 8,
            "last_step": 88,
            "is_decided": True,
            "winner": "planned",
            "times": [
                {
                    "mode": "planned",
                    "num_blocks": 4,
                    "step_ns": 80_000_000,
                    "gain_pct": 20.0,
                    "interval_pct": [18.5, 21.25],
                }
            ],
            "digest": DIGEST,
        }
    ],
    "replans": [{"step": 300, "reason": "the network takes 2 times as long", "digest": DIGEST}],
}
