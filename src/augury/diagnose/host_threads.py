"""Threads of the ranks of each host, and the cores that the ranks may run on."""

from __future__ import annotations

from dataclasses import dataclass

from augury.core.trace.trace import RankFacts, Trace


@dataclass(frozen=True, slots=True)
class HostThreads:
    """The ranks of one host; all of them recorded their threads and cores."""

    host: str
    rows: list[int]
    """Rows of the ranks."""
    num_threads: int
    """Threads of all ranks, each of which shares the work of one operation."""
    cores: int
    """Cores that any of the ranks may run on, as far as the limits of control groups allow."""
    cpu: tuple[float, float] | None
    """Cores that the ranks used, and that the whole machine used; None if unknown."""

    @property
    def threads_per_rank(self) -> int:
        """Number of threads with which the ranks share the cores."""
        return max(1, self.cores // len(self.rows))


def host_threads(trace: Trace) -> list[HostThreads]:
    """Returns the hosts whose threads and cores are known."""
    hosts: dict[str, list[int]] = {}
    for row, facts in enumerate(trace.ranks):
        hosts.setdefault(facts.host, []).append(row)
    return [
        _of_host(host, rows, [trace.ranks[row] for row in rows])
        for host, rows in hosts.items()
        if all(trace.ranks[row].num_threads and trace.ranks[row].core_numbers for row in rows)
    ]


def _of_host(host: str, rows: list[int], ranks: list[RankFacts]) -> HostThreads:
    cores = len({core for facts in ranks for core in facts.core_numbers})
    limits = [facts.cpu_limit for facts in ranks if facts.cpu_limit is not None]
    if len(limits) == len(ranks):
        # Ranks may have one group together, or one each: the smaller number is assumed.
        cores = min(cores, max(1, int(min(limits))))
    used = [facts.cpu_use for facts in ranks if facts.cpu_use is not None]
    cpu = None
    if len(used) == len(ranks):
        cpu = (
            sum(one.process_ns / one.wall_ns for one in used),
            max(one.machine_ns / one.wall_ns for one in used),
        )
    return HostThreads(host, rows, sum(facts.num_threads for facts in ranks), cores, cpu)
