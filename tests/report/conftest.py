"""Replays to render: a data-parallel run with a straggler, a run with servers, a hostile one."""

import pytest

from augury.build.collectives.ports import PortKind
from augury.build.synthetic.layers import ModelSize, conv_layers
from augury.build.synthetic.training_run import PARAMETER_SERVER, SyntheticJob, synthesize
from augury.core.enums import MemoryKind, OpKind
from augury.core.graph.builder import GraphBuilder
from augury.core.timeline import Timeline
from augury.replay.run import replay

HOSTILE_NAMES = (
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "[bold red]markup[/] [link=x]y[/link] :boom:",
    "back\rspace\x08\x7f\x9b1m",
    "new\nline\ttab",
    "\u202eesrever\u2066\u200b",
    'quote " backslash \\ </script>',
    "e\u0301\u0302\u0303\u0304\u0305",
    "",
    "x" * 100_000,
)


@pytest.fixture(scope="session")
def straggling() -> Timeline:
    """Eight ranks, one of them slow, with buckets of gradients and memory."""
    job = SyntheticJob(
        layers=conv_layers(ModelSize(num_layers=6)), stragglers=((5, 1.5),), num_steps=2
    )
    return replay(synthesize(job))


@pytest.fixture(scope="session")
def with_servers() -> Timeline:
    """Pushes and pulls that overlap on ports and in flight."""
    job = SyntheticJob(
        layers=conv_layers(ModelSize(num_layers=4)), algorithm=PARAMETER_SERVER, ports=PortKind.FAIR
    )
    return replay(synthesize(job))


@pytest.fixture(scope="session")
def one_link() -> Timeline:
    """Three ranks on a link that belongs to no rank; the preceding operations need no resource."""
    builder = GraphBuilder()
    link = builder.shared_resource("backbone")
    for rank in [builder.rank() for _ in range(3)]:
        marks = [builder.op("mark", rank=rank, work_ns=10 * rank + i) for i in range(2)]
        builder.op("send", rank=rank, resource=link, work_ns=100, after=marks)
    return replay(builder.build())


@pytest.fixture(scope="session")
def hostile() -> Timeline:
    builder = GraphBuilder()
    rank = builder.rank(host=HOSTILE_NAMES[0])
    before: list[int] = []
    for name in HOSTILE_NAMES:
        stream = builder.resource(name, rank=rank)
        op = builder.op(
            name,
            kind=OpKind.BACKWARD,
            rank=rank,
            resource=stream,
            work_ns=1_234_567,
            layer=name,
            after=before,
        )
        builder.buffer(1_000, rank=rank, kind=MemoryKind.ACTIVATION, taken_by=op, layer=name)
        before = [op]
    builder.ledger.note(HOSTILE_NAMES[0], HOSTILE_NAMES[1], example=HOSTILE_NAMES[5])
    return replay(builder.build())
