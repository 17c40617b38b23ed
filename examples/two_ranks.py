"""Builds the graph of one training step on two ranks, replays it, and predicts a faster link.

python examples/two_ranks.py
"""

import augury
from augury import GraphBuilder, OpKind

MS = 1_000_000  # nanoseconds


def add_rank(builder: GraphBuilder, gang: int, slowdown: float) -> None:
    """Adds a rank that computes gradients, exchanges them and updates its parameters."""
    rank = builder.rank()
    compute = builder.resource("compute", rank=rank)
    link = builder.resource("link", rank=rank)

    def add(name: str, kind: OpKind, time_ms: float, after: list[int]) -> int:
        work_ns = int(time_ms * slowdown * MS)
        return builder.op(
            name, kind=kind, rank=rank, resource=compute, work_ns=work_ns, after=after
        )

    forward = add("forward", OpKind.FORWARD, 4, [])
    backward = add("backward", OpKind.BACKWARD, 8, [forward])
    exchange = builder.op(
        "all-reduce",
        kind=OpKind.ALL_REDUCE,
        rank=rank,
        resource=link,
        work_ns=6 * MS,
        size_bytes=12_000_000,
        gang=gang,
        after=[backward],
    )
    add("update", OpKind.UPDATE, 1, [exchange])


builder = GraphBuilder()
gang = builder.gang()  # operations of a gang, here the all-reduce, wait for the last rank
add_rank(builder, gang, slowdown=1.0)
add_rank(builder, gang, slowdown=1.25)
run = augury.open(builder.build())

replayed = run.replay()
print(f"step: {replayed.predicted_step_ns / MS:.2f} ms")

# The critical path is the chain of operations that determines the length of the step.
print("critical path:")
for segment in replayed.critical_path:
    if segment.dur_ns > 0:
        print(f"  rank {segment.rank}  {segment.name:10}  {segment.dur_ns / MS:5.2f} ms")

for bandwidth in ("2x", "10x"):
    change = run.whatif(bandwidth=bandwidth)
    step_ms = change.predicted_step_ns / MS
    print(f"{bandwidth} bandwidth: {step_ms:.2f} ms, gain {change.gain_pct:.1f} %")
change = run.whatif(compute_scale="1:0.8")  # rank 1 takes 0.8 times as long
print(f"rank 1 as fast as rank 0: {change.predicted_step_ns / MS:.2f} ms")
