from pathlib import Path

import polars as pl

from augury.core.timeline import Timeline
from augury.report.table import write_parquet


def test_one_row_an_operation(straggling: Timeline, tmp_path: Path) -> None:
    path = tmp_path / "ops.parquet"
    write_parquet(straggling, path)
    frame = pl.read_parquet(path)
    graph = straggling.graph
    assert frame.height == graph.num_ops
    assert frame["start_ns"].to_list() == straggling.start_ns.tolist()
    assert frame["name"][3] == graph.op_name(3)
    assert frame["resource"][0] == graph.resource_name(int(graph.ops.resource[0]))
    on_path = frame.filter(pl.col("critical").is_not_null())["op"].to_list()
    assert set(on_path) == set(straggling.critical_path.op.tolist())


def test_missing_indices_are_null(with_servers: Timeline, tmp_path: Path) -> None:
    path = tmp_path / "ops.parquet"
    write_parquet(with_servers, path)
    frame = pl.read_parquet(path)
    ops = with_servers.graph.ops
    for name in ("gang", "layer", "resource", "step"):
        missing = int((getattr(ops, name) < 0).sum())
        assert frame[name].null_count() == missing, name


def test_hostile_names_stay_data(hostile: Timeline, tmp_path: Path) -> None:
    path = tmp_path / "ops.parquet"
    write_parquet(hostile, path)
    assert pl.read_parquet(path)["name"][0] == "\x1b[31mred\x1b[0m"
