from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from augury.core.cluster.device import Precision
from augury.core.errors import FileFormatError, InputError
from augury.oracle.fitting.comparison import compare, rank, works_for
from augury.oracle.fitting.corrections import BARE, Constants, load_constants, save_constants
from augury.oracle.fitting.fit_corrections import Predictor, fit
from augury.oracle.fitting.measured_table import Row, every_other, read_table
from augury.oracle.layer_costs import LayerWork
from augury.oracle.strategy import Options
from tests.oracle.small import CLUSTER, DEVICE, MODEL

WORKS = {"small": LayerWork.of(MODEL, DEVICE)}
TRUE = Constants(compute_ratio=1.3, gradient_contention=3.0, channel_redundancy=0.6)


def _row(strategy: str, devices: int, batch: int, **more: object) -> Row:
    return Row(
        model="small",
        strategy=strategy,
        devices=devices,
        global_batch=batch,
        measured_step_s=1.0,
        **more,  # type: ignore[arg-type]
    )


def _measured(rows: list[Row], constants: Constants = TRUE) -> list[Row]:
    """As if the oracle with these constants were the truth."""
    found = Predictor(rows=rows, works=WORKS, cluster=CLUSTER, options=Options()).predict(constants)
    columns = (found.step_s.tolist(), found.compute_s.tolist(), found.memory_bytes.tolist())
    return [
        replace(row, measured_step_s=step, measured_compute_s=compute, measured_memory_bytes=memory)
        for row, step, compute, memory in zip(rows, *columns, strict=True)
    ]


ROWS = [
    *(_row("data", 2**i, 512 * 2**i) for i in range(1, 7)),
    *(_row("channel", 2**i, 4096) for i in range(1, 4)),
]


def test_what_is_true_is_found_again():
    found = fit(_measured(ROWS), WORKS, CLUSTER)
    assert found.compute_ratio == pytest.approx(1.3, rel=0.05)
    assert found.gradient_contention == pytest.approx(3.0, rel=0.1)
    assert found.channel_redundancy == pytest.approx(0.6, abs=0.05)
    for one in compare(_measured(ROWS), WORKS, CLUSTER, found):
        assert one.accuracy_pct > 97


def test_what_nothing_speaks_of_stays_neutral():
    found = fit(_measured(ROWS), WORKS, CLUSTER)
    for name in ("filter_redundancy", "staging_s_per_byte", "group_messages"):
        assert getattr(found, name) == pytest.approx(0, abs=1e-6)
    assert found.filter_contention == pytest.approx(1, abs=1e-3)
    assert found.fitted_on == "9 measurements of small on two levels"
    assert found.spread.keys() == {"data", "channel"}


def test_an_outlier_does_not_pull_all_along():
    rows = _measured(ROWS)
    rows[3] = replace(rows[3], measured_step_s=4 * (rows[3].measured_step_s or 0))
    found = fit(rows, WORKS, CLUSTER)
    others = [*_measured(ROWS)[:3], *_measured(ROWS)[4:]]
    assert np.mean([one.accuracy_pct for one in compare(others, WORKS, CLUSTER, found)]) > 93


def test_memory_is_fitted_where_it_was_measured():
    rows = [_row("data", 1, 64 * 2**i) for i in range(6)]
    found = fit(_measured(rows, Constants(memory_reuse=0.8)), WORKS, CLUSTER)
    assert found.memory_reuse == pytest.approx(0.8, rel=0.02)


def test_nothing_measured_is_nothing_to_fit_on():
    with pytest.raises(InputError, match="no row has a measured step"):
        fit([replace(ROWS[0], measured_step_s=None)], WORKS, CLUSTER)


def test_a_serial_row_tells_what_a_sample_takes():
    rows = [_row("serial", 1, 10)]
    works = works_for(rows, lambda _: MODEL, CLUSTER, Precision.FP32)
    (one,) = compare(rows, works, CLUSTER, BARE)
    assert one.error_pct == pytest.approx(0)
    with pytest.raises(InputError, match="serial"):
        works_for([_row("serial", 2, 10)], lambda _: MODEL, CLUSTER, Precision.FP32)


def test_ranks_and_regret():
    rows = [
        replace(_row("data", 4, 64), measured_step_s=2.0),
        replace(_row("filter", 4, 64), measured_step_s=1.0),
        replace(_row("channel", 4, 64), measured_step_s=1.01),
        replace(_row("data", 8, 64), measured_step_s=1.0),
    ]
    found = {one.row.strategy: one for one in compare(rows, WORKS, CLUSTER, BARE)[:3]}
    believed = [
        replace(found[name], predicted_step_s=value)
        for name, value in (("data", 1.0), ("filter", 3.0), ("channel", 2.0))
    ]
    (one,) = rank(believed)
    assert one.measured == ("filter", "channel", "data")
    assert one.predicted == ("data", "channel", "filter")
    # Filter and channel are too close to have an order.
    assert (one.num_pairs, one.num_right) == (2, 0)
    assert one.regret_pct == pytest.approx(100)
    assert one.correlation == pytest.approx(-1)


def test_every_other_scale():
    first, second = (every_other(ROWS, start) for start in (0, 1))
    assert [row.devices for row in first] == [2, 8, 32, 2, 8]
    assert sorted(map(repr, [*first, *second])) == sorted(map(repr, ROWS))


def _table(tmp_path: Path, text: str) -> list[Row]:
    path = tmp_path / "table.csv"
    path.write_text(text)
    return read_table(path)


HEAD = "model,strategy,devices,global_batch,measured_step_s\n"


def test_a_table(tmp_path: Path):
    rows = _table(tmp_path, HEAD + "resnet50, ds ,1K,64,0.5\nvgg16,serial,1,8,1e-2\n")
    assert [(row.strategy, row.devices) for row in rows] == [("data_spatial", 1024), ("serial", 1)]
    assert rows[0].measured_compute_s is None


def test_panels(tmp_path: Path):
    head = "panel,p,model_comp_s,model_total_s,emp_comp_s,emp_total_s\n"
    rows = _table(
        tmp_path,
        head + "A data b64,16,1,2,3,4\nA df b64,16,1,2,,\nA channel b64,8,1,2,3,4\n",
    )
    assert [row.global_batch for row in rows] == [1024, 256, 64]
    assert rows[1].measured_step_s is None
    assert rows[1].projected_step_s == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no table"),
        ("a,b\n1,2\n", "no table"),
        (HEAD, "no rows"),
        (HEAD + "m,data,0,64,1\n", "row 2"),
        (HEAD + "m,data,4,64,-1\n", "positive"),
        (HEAD + "m,data,4,64,nan\n", "positive"),
        (HEAD + "m,data,4,64,x\n", "row 2"),
        (HEAD + "m,data,4,64\n", "measured_step_s is missing"),
        (HEAD + "m,magic,4,64,1\n", "no strategy"),
        (HEAD + 'm,"data,4,64,1\n', "CSV"),
        ("panel,p,emp_total_s\nA data,4,1\n", "not a panel"),
        ("panel,p,emp_total_s\nA data b64,4K4,1\n", "not a number"),
    ],
)
def test_what_is_wrong_with_a_table_is_said(tmp_path: Path, text: str, says: str):
    with pytest.raises(InputError, match=says):
        _table(tmp_path, text)


def test_a_table_that_is_not_text(tmp_path: Path):
    path = tmp_path / "table.csv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not CSV"):
        read_table(path)
    with pytest.raises(InputError, match="cannot read"):
        read_table(tmp_path / "none.csv")


def test_constants_are_kept_in_a_file(tmp_path: Path):
    path = tmp_path / "constants.json"
    constants = replace(TRUE, spread={"data": 0.1}, fitted_on="something")
    save_constants(constants, path)
    assert load_constants(path) == constants


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"kind": "augury-plan"}, "augury-plan"),
        ({"schema_version": 2}, "schema 2"),
        ({"constants": {"magic": 1.0}}, "magic"),
        ({"constants": {"compute_ratio": 1e9}}, "compute_ratio"),
        ({"constants": {"compute_ratio": "x"}}, "compute_ratio"),
        ({"constants": {"spread": {"data": -1.0}}}, "spread"),
        ({"more": 1}, "more"),
    ],
)
def test_constants_of_others_are_checked(tmp_path: Path, change: dict, says: str):
    path = tmp_path / "constants.json"
    save_constants(TRUE, path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(FileFormatError, match=says):
        load_constants(path)


def test_files_that_are_no_constants(tmp_path: Path):
    path = tmp_path / "constants.json"
    for content in (b"", b"[" * 10_000, b"\xff", b" " * 70_000):
        path.write_bytes(content)
        with pytest.raises(FileFormatError):
            load_constants(path)
    with pytest.raises(InputError, match="cannot read"):
        load_constants(tmp_path / "none.json")
