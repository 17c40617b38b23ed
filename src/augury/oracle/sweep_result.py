"""Result of a sweep as the typed struct that reports show."""

from __future__ import annotations

from collections.abc import Sequence

from augury.core.errors import InfeasibleError
from augury.core.results.oracle import OracleResult, OracleRow, PartResult, Recommendation
from augury.oracle.feasibility import REASONS, Judged
from augury.oracle.recommend import Choice, interval_s, recommend, recommend_each
from augury.oracle.strategy import LimitReason
from augury.oracle.uncertainty import warnings_of


def sweep_result(
    judged: Sequence[Judged], *, samples: int | None, notes: Sequence[str] = ()
) -> OracleResult:
    case = judged[0].case
    best = recommend(judged)
    return OracleResult(
        model=case.work.model.name,
        num_parameters=case.work.model.num_parameters,
        num_layers=len(case.work.model.layers),
        sample_s=case.work.sample_s,
        cluster=case.cluster.name,
        device=case.cluster.described_device.name,
        precision=case.work.precision,
        constants=case.constants.fitted_on or "none, the bare equations",
        samples=samples,
        memory_limit_bytes=int(judged[0].memory_limit_bytes),
        rows=[_row(one, index, samples) for index in range(len(case.devices)) for one in judged],
        fastest=[_recommendation(one, judged) for one in recommend_each(judged) if one is not None],
        recommended=_recommendation(best, judged) if best is not None else None,
        warnings=warnings_of(judged),
        notes=list(notes),
    )


def require_feasible(result: OracleResult) -> None:
    """Raises if no configuration is feasible, with the binding constraint of the closest one:
    preferably one that only lacks memory, and the least of it."""
    if result.recommended is not None:
        return
    closest = min(
        result.rows, key=lambda row: (row.bottleneck != LimitReason.MEMORY, row.memory_bytes)
    )
    refusal = InfeasibleError(
        f"no strategy is feasible: {closest.strategy} on {closest.devices} devices: {closest.why}",
        remedy="try another number of devices, more memory, a batch that divides, --recompute, or"
        " a lower --precision",
    )
    refusal.result = result
    raise refusal


def _row(judged: Judged, index: int, samples: int | None) -> OracleRow:
    estimate, case = judged.estimate, judged.case
    devices, batch = int(case.devices[index]), int(case.batch[index])
    step_s = float(judged.step_s[index])
    epoch_s = step_s * samples / batch if samples is not None else None
    price = case.cluster.price_per_device_hour
    # Same constants as the step, without recomputation, which is no useful work.
    even_s = case.constants.compute_ratio * case.work.sample_s * batch / devices
    return OracleRow(
        strategy=estimate.strategy,
        devices=devices,
        axes={name: int(degree[index]) for name, degree in estimate.axes.items()},
        global_batch=batch,
        step_s=step_s,
        compute_s=float(judged.compute_s[index]),
        comm_s=float(judged.comm_s[index]),
        exposed_comm_s=float(judged.exposed_comm_s[index]),
        memory_bytes=int(judged.memory_bytes[index]),
        feasible=bool(judged.feasible[index]),
        limit=judged.limit(index),
        bottleneck=str(REASONS[judged.bottleneck[index]]),
        interval_s=interval_s(judged, index),
        why=judged.why(index),
        epoch_s=epoch_s,
        cost_per_epoch=(
            epoch_s / 3600 * devices * price if epoch_s is not None and price is not None else None
        ),
        efficiency_pct=100 * even_s / step_s,
        memory_by_kind={kind: int(held[index]) for kind, held in estimate.memory_bytes.items()},
        parts=[
            PartResult(
                reason=str(part.reason),
                collective=part.collective,
                size_bytes=int(part.size_bytes[index]),
                group=int(part.group[index]),
                level=case.cluster.levels[int(part.level[index])].name,
                time_s=float(part.time_s[index]),
                exposed_s=float(part.exposed_s[index]),
            )
            for part in estimate.parts
        ],
        fidelity=(
            "replay" if judged.is_replayed is not None and judged.is_replayed[index] else "closed"
        ),
    )


def _recommendation(choice: Choice, judged: Sequence[Judged]) -> Recommendation:
    batch = float(judged[choice.place].case.batch[choice.index])
    return Recommendation(
        devices=choice.devices,
        strategy=choice.strategy,
        step_s=choice.step_s,
        samples_per_s=batch / choice.step_s,
        alike=list(choice.alike),
        runner_up=choice.runner_up,
        margin_pct=choice.margin_pct,
        confidence_pct=choice.confidence_pct,
    )
