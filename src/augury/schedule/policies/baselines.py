"""The published policies, for comparison with our own."""

from __future__ import annotations

from augury.schedule.policies.bytescheduler import ByteScheduler
from augury.schedule.policies.ddp import Ddp, DdpBest
from augury.schedule.policies.dear import Dear
from augury.schedule.policies.fifo import Fifo
from augury.schedule.policies.mg_wfbp import MgWfbp
from augury.schedule.policies.p3 import P3
from augury.schedule.policies.policy import Policy
from augury.schedule.policies.prophet import Prophet

RIVALS: tuple[Policy, ...] = (
    Fifo(),
    Ddp(),
    DdpBest(),
    P3(),
    ByteScheduler(),
    MgWfbp(),
    Dear(),
    Prophet(),
)
