"""The run that detectors examine: graph, replay, Trace, noise, and predictions of changes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from augury.core.columns import I4, I8
from augury.core.enums import StepState
from augury.core.errors import AuguryError
from augury.core.graph.graph import Graph
from augury.core.ledger import Ledger, Severity
from augury.core.measured_step import counted_rows, over_ranks
from augury.core.results.prediction import Prediction
from augury.core.timeline import Timeline
from augury.core.trace.trace import Trace
from augury.core.wire import Wire
from augury.costs.prediction_interval import SIGMAS_OF_90_PCT, Representation
from augury.diagnose.pipelines import has_pipeline
from augury.ingest.wire.read_wire import read_wire
from augury.passes.protocol import ErrorModel, Scene, Step, compose
from augury.predict.opened_run import FineRun, OpenedRun
from augury.predict.prediction import predict_step, representation_of
from augury.predict.replays import replay_changed, replay_graph
from augury.predict.schedule_case import QUIET_NOISE, noise_of
from augury.replay.utilization import step_durations_ns

Floats = np.ndarray[tuple[int], np.dtype[np.float64]]

MOST_NOISE = 0.05
"""Larger gains are reported if their own interval excludes zero, however noisy the steps are."""
_FEWEST_STEPS = 5
"""Number of replayed steps whose variation shows the noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedGain:
    """The replayed step after a change, against the replayed step without it."""

    step_ns: int
    interval_ns: tuple[int, int] | None
    gain_pct: float
    interval_pct: tuple[float, float]
    """90 % interval of the gain."""


@dataclass(frozen=True, eq=False)
class ExaminedRun:
    """``ledger`` collects what went wrong during the examination."""

    opened: OpenedRun
    ledger: Ledger = field(default_factory=Ledger)

    @property
    def graph(self) -> Graph:
        return self.opened.graph

    @cached_property
    def scene(self) -> Scene:
        return Scene.recorded(self.graph, self.opened.calibration)

    @cached_property
    def timeline(self) -> Timeline:
        """The replay of the unchanged graph."""
        return replay_graph(self.graph, progress=self.opened.progress)

    @cached_property
    def recorded(self) -> Representation | None:
        return representation_of(self.timeline)

    @cached_property
    def baseline(self) -> Prediction:
        return predict_step(self.timeline, self.recorded)

    @property
    def step_ns(self) -> int:
        """The replayed step, from which gains are counted."""
        return self.timeline.step_ns

    @property
    def mean_step_ns(self) -> float:
        """Mean of the replayed steps."""
        dur_ns = self._steps_of(self.timeline)[1]
        return float(dur_ns.mean()) if len(dur_ns) else float(self.step_ns)

    @cached_property
    def noise(self) -> float:
        """The smallest gain that is reported, as a share of the step: the error of the median of
        the replayed steps, within limits. Levels of windows that differ, as on a machine with other
        load, move both sides of a gain, and so does most of a step's own variation: the interval of
        each gain has the noise of the gain itself."""
        return min(self._level_noise, MOST_NOISE)

    @cached_property
    def _level_noise(self) -> float:
        """The error of the median of the replayed steps, as a share of it."""
        of_levels = noise_of(self.recorded)
        dur_ns = self._steps_of(self.timeline)[1]
        if self.recorded is None or len(dur_ns) < _FEWEST_STEPS:
            return of_levels
        return min(of_levels, max(QUIET_NOISE, _error_of_median(np.log(np.maximum(1, dur_ns)))))

    def _gain_noise(self, after: Timeline) -> float:
        """The error of a gain, from the gains of single steps."""
        if self.recorded is None:
            return self._level_noise
        number, before_ns = self._steps_of(self.timeline)
        number_after, after_ns = self._steps_of(after)
        if len(number) < _FEWEST_STEPS or not np.array_equal(number, number_after):
            return self._level_noise
        ratios = np.log(np.maximum(1, after_ns)) - np.log(np.maximum(1, before_ns))
        return max(QUIET_NOISE, _error_of_median(ratios))

    @staticmethod
    def _steps_of(timeline: Timeline) -> tuple[I4, Floats]:
        """Returns numbers and durations of the steps of the slowest rank."""
        slowest = int(np.argmax(timeline.rank_step_ns))
        steps = timeline.rank_steps.of_rank(slowest)
        return steps.step, step_durations_ns(steps).astype(np.float64)

    @property
    def trace(self) -> Trace | None:
        return self.opened.trace if self.opened.is_recorded else None

    @cached_property
    def is_pipeline(self) -> bool:
        """Whether forward or backward of a rank waits for a message of the same step: ranks pass
        activations to each other."""
        trace = self.trace
        if trace is not None and any(facts.piece_groups for facts in trace.ranks):
            return False  # two ranks exchange the pieces of a plan by messages
        return has_pipeline(self.graph)

    @cached_property
    def is_on_devices(self) -> bool:
        return self.graph.meta.get("source") == "recorded on devices"

    @cached_property
    def fine(self) -> FineRun | str:
        """The run with its links; or the reason why it has none."""
        try:
            return self.opened.fine
        except AuguryError as error:
            return error.cause

    @cached_property
    def wire(self) -> Wire | None:
        """The recorded traffic; None without a wire record."""
        return None if isinstance(self.fine, str) else read_wire(self.opened.path, self.trace)

    @cached_property
    def step_series(self) -> tuple[I8, Floats]:
        """Numbers and durations of the steps of the whole job: as measured outside of windows; of
        a run without them, as replayed."""
        trace = self.trace
        if trace is not None:
            rows, steps = np.flatnonzero(counted_rows(trace)), trace.steps
            own = steps.end_ns[rows] - steps.start_ns[rows]
            number, dur_ns = over_ranks(steps.rank[rows], steps.step[rows], own)
            return number.astype(np.int64), dur_ns
        if len(self.graph.carries):
            return np.zeros(0, dtype=np.int64), np.zeros(0)
        replayed, dur_ns = self._steps_of(self.timeline)
        return replayed.astype(np.int64), dur_ns

    @cached_property
    def slowest_rank_series(self) -> tuple[I8, Floats]:
        """The same on the rank that takes longest in total. Where ranks wait for each other, each
        of them has every pause in one of its steps; but it may be an earlier step on the rank that
        paused, so that the mean over the ranks has half a pause in each of two steps."""
        trace = self.trace
        if trace is None:
            return self.step_series
        rows, steps = np.flatnonzero(counted_rows(trace)), trace.steps
        rows = rows[np.isin(steps.step[rows], self.step_series[0])]
        dur_ns = steps.end_ns[rows] - steps.start_ns[rows]
        if not len(rows):
            return self.step_series
        own = steps.rank[rows] == np.argmax(np.bincount(steps.rank[rows], weights=dur_ns))
        order = np.argsort(steps.step[rows][own], kind="stable")
        return steps.step[rows][own][order].astype(np.int64), dur_ns[own][order].astype(np.float64)

    @property
    def num_timed_steps(self) -> int:
        if self.trace is None:
            return self.graph.num_steps
        state = self.trace.steps.state
        return len(np.unique(self.trace.steps.step[state == StepState.TIMED]))

    def predict(
        self, *changes: Step, of: Scene | None = None, baseline_ns: int | None = None
    ) -> PredictedGain | None:
        """Predicts the step after these changes; None if they cannot be applied or replayed, which
        the ledger notes. ``of`` is the scene to change if it is not the recorded one, and
        ``baseline_ns`` its replayed step."""
        model = ErrorModel.combined(one.error_model(parameters) for one, parameters in changes)
        try:
            scene = compose(of or self.scene, changes).scene
            after = self.replay(scene.graph)
        except AuguryError as error:
            self.note_failure(changes, error)
            return None
        return self.gain_of(after, model_error=model.relative, baseline_ns=baseline_ns)

    def predict_mean(self, *changes: Step) -> PredictedGain | None:
        """Predicts the gain of the mean step, for causes that single steps have and the median step
        has not. None where changes cannot be replayed, and with few steps."""
        model = ErrorModel.combined(one.error_model(parameters) for one, parameters in changes)
        try:
            after = self.replay(compose(self.scene, changes).scene.graph)
        except AuguryError as error:
            self.note_failure(changes, error)
            return None
        number, before_ns = self._steps_of(self.timeline)
        number_after, after_ns = self._steps_of(after)
        if len(number) < _FEWEST_STEPS or not np.array_equal(number, number_after):
            return None
        ratio = float(after_ns.sum() / max(1.0, before_ns.sum()))
        # The error of a ratio of sums over the same steps.
        left = after_ns - ratio * before_ns
        error_of_ratio = math.sqrt(len(left) * float(left.var(ddof=1))) / max(1.0, before_ns.sum())
        noise = SIGMAS_OF_90_PCT * error_of_ratio / max(1e-9, ratio)
        mean_ns = round(self.mean_step_ns)
        return self.gain(
            round(ratio * mean_ns),
            None,
            model_error=model.relative,
            baseline_ns=mean_ns,
            noise=min(noise, 50.0),
        )

    def replay(self, graph: Graph) -> Timeline:
        """Replays a changed graph. Recorded steps measure the unchanged one."""
        unmeasured = graph.evolve(measured=graph.measured.empty())
        return replay_changed(unmeasured, progress=self.opened.progress)

    def gain_of(
        self, after: Timeline, *, model_error: float = 0.0, baseline_ns: int | None = None
    ) -> PredictedGain:
        """Both sides of a gain replay the same windows: only noise and the error of the change's
        model remain."""
        before_ns = baseline_ns or self.step_ns
        predicted = predict_step(
            after, self.recorded, baseline_ns=before_ns, model_error=model_error
        )
        return self.gain(
            predicted.predicted_step_ns,
            predicted.interval_ns,
            model_error=predicted.model_error,
            baseline_ns=before_ns,
            noise=self._gain_noise(after),
        )

    def gain(
        self,
        step_ns: int,
        interval_ns: tuple[int, int] | None,
        *,
        model_error: float,
        baseline_ns: int | None = None,
        noise: float | None = None,
    ) -> PredictedGain:
        """``noise`` is half the width of the gain's interval without the error of the model; by
        default that of the run's level."""
        noise = self._level_noise if noise is None else noise
        ratio = step_ns / max(1, baseline_ns or self.step_ns)
        reach = math.exp(math.hypot(noise, SIGMAS_OF_90_PCT * model_error))
        return PredictedGain(
            step_ns=step_ns,
            interval_ns=interval_ns,
            gain_pct=100 * (1 - ratio),
            interval_pct=(100 * (1 - ratio * reach), 100 * (1 - ratio / reach)),
        )

    def note_failure(self, changes: Sequence[Step], error: AuguryError) -> None:
        self.ledger.note(
            "change-not-replayed",
            "a change that the diagnosis needs could not be replayed; its cause is left out",
            severity=Severity.INFO,
            example=f"{', '.join(one.name for one, _ in changes)}: {error.cause}",
        )


def _error_of_median(values: Floats) -> float:
    """Returns half the width of the 90 % interval of the median, robust against outliers."""
    spread = 1.4826 * float(np.median(np.abs(values - np.median(values))))
    return SIGMAS_OF_90_PCT * 1.2533 * spread / math.sqrt(len(values))
