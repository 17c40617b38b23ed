"""The oracle's predictions of strategies that really ran, next to their measured steps.

Each strategy has two predictions: from its own parts, timed as it splits them, which shows that a
step is the sum of its parts; and from layers in one process and one fit of the network, which is
all that a user has before running the strategy (``serial``).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from augury.oracle.graphs.strategy_graph import strategy_graph
from augury.oracle.strategies.registry import find_strategy
from augury.oracle.strategy import Strategy, StrategyCase
from augury.replay.run import replay
from benchmarks.validate.measured import Measured
from benchmarks.validate.oracle_cores import on_shared_cores
from benchmarks.validate.oracle_layers import serial_work, work_of
from benchmarks.validate.oracle_links import case_of, machine_of, one_network
from benchmarks.validate.oracle_record import Record
from benchmarks.validate.rows import Row

SUITE = "oracle"
SERIAL = "serial"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Results of one case, by strategy."""

    case: str
    measured: dict[str, Measured]
    predicted_ns: dict[str, int]
    serial_ns: dict[str, int]
    """Predictions from layers in one process and one fit of the network."""
    differences: dict[str, float]

    def accuracy_pct(self, strategy: str) -> float:
        took = self.measured[strategy].step_ns
        return 100 * (1 - abs(self.predicted_ns[strategy] - took) / took)

    @property
    def behind_fastest_pct(self) -> float:
        """How much slower the predicted fastest strategy is than the measured fastest."""
        return 100 * (self._named.step_ns / self._fastest.step_ns - 1)

    @property
    def noise_pct(self) -> float:
        return self._named.noise_pct + self._fastest.noise_pct

    @property
    def _named(self) -> Measured:
        return self.measured[min(self.predicted_ns, key=self.predicted_ns.__getitem__)]

    @property
    def _fastest(self) -> Measured:
        return min(self.measured.values(), key=lambda one: one.step_ns)


def outcome_of(case: str, folder: Path) -> Outcome:
    record = Record.read(folder)
    return Outcome(
        case=case,
        measured={name: record.measured(name) for name in record.strategies},
        predicted_ns={name: round(1e9 * step_s(record, name)) for name in record.strategies},
        serial_ns={name: round(1e9 * serial_step_s(record, name)) for name in record.strategies},
        differences=record.differences,
    )


def step_s(record: Record, name: str) -> float:
    """Predicts from the strategy's own layers and communications, timed in isolation."""
    strategy, work = find_strategy(name), work_of(record, name)
    return _step_s(record, strategy, case_of(record, work, machine_of(record, strategy, work)))


def serial_step_s(record: Record, name: str) -> float:
    case = case_of(record, serial_work(record, name), one_network(record))
    return _step_s(record, find_strategy(name), case)


def _step_s(record: Record, strategy: Strategy, case: StrategyCase) -> float:
    """Predicts in closed form; a pipeline's graph is replayed, as its stages may share cores."""
    if strategy.name != "pipeline":
        return float(strategy.evaluate(case).step_s[0])
    return replay(on_shared_cores(strategy_graph(strategy, case), record.cores)).step_ns / 1e9


def rows_of(found: Outcome) -> list[Row]:
    return [
        Row(
            suite=SUITE,
            case=f"{found.case}/{name}{suffix}",
            kind=kind,
            measured_ns=measured.step_ns,
            predicted_ns=predicted_ns[name],
            interval_ns=None,
            noise_pct=measured.noise_pct,
            num_steps=measured.num_steps,
        )
        for kind, suffix, predicted_ns in (
            ("oracle", "", found.predicted_ns),
            (SERIAL, f"/{SERIAL}", found.serial_ns),
        )
        for name, measured in found.measured.items()
    ]
