"""The policies that others published."""

from __future__ import annotations

from augury.schedule.bytescheduler import ByteScheduler
from augury.schedule.ddp import Ddp, DdpBest
from augury.schedule.dear import Dear
from augury.schedule.fifo import Fifo
from augury.schedule.mg_wfbp import MgWfbp
from augury.schedule.p3 import P3
from augury.schedule.policy import Policy
from augury.schedule.prophet import Prophet

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
