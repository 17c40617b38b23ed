"""Machines that need no file. Figures of devices and links are the makers'; efficiencies and
latencies, where nothing better is known, are round and said to be so in docs/oracle.md."""

from __future__ import annotations

from augury.oracle.cluster import Level, Machine
from augury.oracle.device import Device, Precision

_GB = 10**9

# Efficiencies of V100 and A100 follow from published times of whole networks; those of newer
# devices are the A100's, a little lower as peaks have grown faster: docs/oracle.md.
V100 = Device(
    name="V100",
    flops_per_s={Precision.FP32: 15.7e12, Precision.FP16: 125e12},
    memory_bandwidth_bytes_per_s=900 * _GB,
    memory_bytes=16 << 30,
    compute_efficiency=0.78,
    memory_efficiency=0.69,
)
A100 = Device(
    name="A100",
    flops_per_s={
        Precision.FP32: 19.5e12,
        Precision.TF32: 156e12,
        Precision.FP16: 312e12,
        Precision.BF16: 312e12,
    },
    memory_bandwidth_bytes_per_s=2039 * _GB,
    memory_bytes=80 << 30,
    compute_efficiency=0.37,
    memory_efficiency=0.55,
)
H100 = Device(
    name="H100",
    flops_per_s={
        Precision.FP32: 67e12,
        Precision.TF32: 494e12,
        Precision.FP16: 989e12,
        Precision.BF16: 989e12,
    },
    memory_bandwidth_bytes_per_s=3350 * _GB,
    memory_bytes=80 << 30,
    compute_efficiency=0.35,
    memory_efficiency=0.55,
)
MI300X = Device(
    name="MI300X",
    flops_per_s={
        Precision.FP32: 163.4e12,
        Precision.TF32: 653.7e12,
        Precision.FP16: 1307.4e12,
        Precision.BF16: 1307.4e12,
    },
    memory_bandwidth_bytes_per_s=5300 * _GB,
    memory_bytes=192 << 30,
    compute_efficiency=0.3,
    memory_efficiency=0.5,
)
CPU = Device(
    name="CPU",
    flops_per_s={Precision.FP32: 2e12, Precision.BF16: 4e12},
    memory_bandwidth_bytes_per_s=200 * _GB,
    memory_bytes=256 << 30,
    compute_efficiency=0.6,
)


def _nodes(
    name: str, device: Device, per_node: int, inside: tuple[int, int], between: tuple[int, int]
) -> Machine:
    """Nodes at one non-blocking network; latency and bandwidth inside and between them."""
    return Machine(
        name=name,
        device=device,
        levels=(
            Level(
                name="node",
                devices=per_node,
                latency_ns=inside[0],
                bandwidth_bytes_per_s=inside[1],
            ),
            Level(
                name="network",
                devices=per_node * 2048,
                latency_ns=between[0],
                bandwidth_bytes_per_s=between[1],
                links=per_node,
            ),
        ),
    )


ABCI = Machine(
    name="abci",
    device=V100,
    levels=(
        Level(name="node", devices=4, latency_ns=10_000, bandwidth_bytes_per_s=50 * _GB),
        # A switch of 36 ports, half of them down, two to a node.
        Level(
            name="leaf",
            devices=36,
            latency_ns=30_000,
            bandwidth_bytes_per_s=12_500_000_000,
            links=2,
        ),
        Level(
            name="rack",
            devices=136,
            latency_ns=30_000,
            bandwidth_bytes_per_s=12_500_000_000,
            links=18,
        ),
        Level(
            name="system",
            devices=4352,
            latency_ns=30_000,
            bandwidth_bytes_per_s=12_500_000_000,
            links=68,
            oversubscription=3,
        ),
    ),
)
"""4 V100 a node, NVLink, two ports of EDR InfiniBand a node, a fat tree with 1:3 between racks.
The latency is the one by which the published projection grows with the number of devices."""

PRESETS = {
    "abci": ABCI,
    "v100": _nodes("v100", V100, 8, (10_000, 50 * _GB), (20_000, 12_500_000_000)),
    "a100": _nodes("a100", A100, 8, (8_000, 300 * _GB), (15_000, 25 * _GB)),
    "h100": _nodes("h100", H100, 8, (8_000, 450 * _GB), (12_000, 50 * _GB)),
    "mi300x": _nodes("mi300x", MI300X, 8, (8_000, 64 * _GB), (12_000, 50 * _GB)),
    "cpu": _nodes("cpu", CPU, 1, (1_000, 100 * _GB), (30_000, 12_500_000_000)),
}
