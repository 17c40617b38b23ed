"""The registry of all detectors."""

from __future__ import annotations

from augury.diagnose.detectors.detector import Detector
from augury.diagnose.detectors.devices.launches import LAUNCH_BOUND
from augury.diagnose.detectors.devices.memory_limit import MEMORY_LIMITS
from augury.diagnose.detectors.devices.synchronization import DEVICE_WAITS
from augury.diagnose.detectors.network.bucket_sizes import BUCKET_SIZES
from augury.diagnose.detectors.network.exposed_communication import EXPOSED_COMMUNICATION
from augury.diagnose.detectors.network.retransmissions import LOSSY_LINKS
from augury.diagnose.detectors.network.slow_links import SLOW_LINKS
from augury.diagnose.detectors.network.slow_network import SLOW_NETWORK
from augury.diagnose.detectors.ranks.pipeline_stages import PIPELINE_STAGES
from augury.diagnose.detectors.ranks.servers import BUSY_SERVERS
from augury.diagnose.detectors.ranks.slow_ranks import SLOW_RANKS
from augury.diagnose.detectors.ranks.uneven_batches import UNEVEN_BATCHES
from augury.diagnose.detectors.steps.cores import CORE_CONTENTION
from augury.diagnose.detectors.steps.drift import DRIFTING_STEPS
from augury.diagnose.detectors.steps.few_threads import FEW_THREADS
from augury.diagnose.detectors.steps.host_gaps import HOST_GAPS
from augury.diagnose.detectors.steps.input import INPUT_WAIT
from augury.diagnose.detectors.steps.pauses import PAUSES

DETECTORS: tuple[Detector, ...] = (
    SLOW_RANKS,
    UNEVEN_BATCHES,
    PIPELINE_STAGES,
    BUSY_SERVERS,
    INPUT_WAIT,
    HOST_GAPS,
    PAUSES,
    CORE_CONTENTION,
    FEW_THREADS,
    DRIFTING_STEPS,
    SLOW_LINKS,
    LOSSY_LINKS,
    SLOW_NETWORK,
    BUCKET_SIZES,
    EXPOSED_COMMUNICATION,
    LAUNCH_BOUND,
    DEVICE_WAITS,
    MEMORY_LIMITS,
)
"""Specific causes before general ones: of two findings with the same gain, the first is reported
first."""
