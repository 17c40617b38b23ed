"""Hosts, their network and the training that runs on them, with real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from benchmarks.testbed.cpu import CONTROLLER, PREFIX, can_control
from benchmarks.testbed.loopback import Loopback
from benchmarks.testbed.network import Network, can_make_networks
from benchmarks.validate.measured import leftover_hooks

from augury.core.plan.plan import CommunicationSection, Mode, Plan, communication_plan
from augury.core.plan.plan_file import save_plan
from augury.core.plan.problem import Gradient, Problem
from augury.core.plan.problem import Network as Link
from augury.schedule.policies.registry import find_policy

torch = pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
needs_rights = pytest.mark.skipif(not can_make_networks(), reason="needs rights to make networks")


def _run(bed, host: int, *command: str, log: Path) -> str:
    assert bed.start(host, command, {}, log).wait(timeout=60) == 0, log.read_text()
    return log.read_text()


def _groups(pid: int) -> list[Path]:
    return list(CONTROLLER.glob(f"{PREFIX}{pid}-*"))


@needs_rights
def test_hosts_are_isolated_and_cleaned_up(tmp_path: Path):
    with Network(2) as bed:
        for host in range(2):
            file = str(bed.hosts[host].scratch / f"of-{host}")
            said = _run(
                bed, host, "sh", "-c", f"hostname; echo > {file}; ls {file}*", log=tmp_path / "log"
            )
            assert said.splitlines()[-2:] == [f"host{host}", file]
        seen = [sorted(p.name for p in host.seen_from_outside.iterdir()) for host in bed.hosts]
        assert seen == [["of-0"], ["of-1"]]
        assert len(_groups(os.getpid())) == 2
        scratch = bed.hosts[0].scratch
    assert not _groups(os.getpid())
    assert not scratch.exists()


@needs_rights
def test_rates_and_quotas_can_be_changed(tmp_path: Path):
    with Network(2, "1gbit") as bed:
        bed.set_rate("200mbit", host=1)
        for host, rate in ((0, "1Gbit"), (1, "200Mbit")):
            log = tmp_path / f"log{host}"
            assert f"rate {rate}" in _run(bed, host, "tc", "qdisc", "show", "dev", "eth0", log=log)
        bed.set_quota(0.5)
        bed.set_quota(None, host=0)
        quotas = [
            int((group / "cpu.cfs_quota_us").read_text()) for group in sorted(_groups(os.getpid()))
        ]
        assert quotas == [-1, 5000]


@needs_rights
def test_a_link_can_change_one_way_only(tmp_path: Path):
    with Network(2, "1gbit") as bed:

        def rates(host: int) -> tuple[str, str]:
            log = tmp_path / f"log{host}"
            log.unlink(missing_ok=True)
            out = _run(bed, host, "tc", "qdisc", "show", "dev", "eth0", log=log)
            switch = ("nsenter", "-t", str(bed._switch), "-n", "--")
            show = [*switch, "tc", "qdisc", "show", "dev", f"v{host}"]
            into = subprocess.run(show, capture_output=True, text=True, check=True).stdout
            return out.partition("rate ")[2].split()[0], into.partition("rate ")[2].split()[0]

        bed.set_rate("500mbit", host=1, way="out")
        assert [rates(0), rates(1)] == [("1Gbit", "1Gbit"), ("500Mbit", "1Gbit")]
        bed.set_rate("1gbit")
        bed.set_rate("500mbit", host=1, way="in")
        assert [rates(0), rates(1)] == [("1Gbit", "1Gbit"), ("1Gbit", "500Mbit")]


@needs_rights
def test_hosts_resolve_each_other_by_name(tmp_path: Path):
    with Network(2) as bed:
        said = _run(bed, 1, "getent", "hosts", "host0", log=tmp_path / "log")
        assert said.split()[0] == bed.hosts[0].address


@needs_rights
def test_leftovers_of_a_killed_bed_are_removed_by_the_next(tmp_path: Path):
    bed = """
        import time
        from pathlib import Path
        from benchmarks.testbed.network import Network
        with Network(1) as bed:
            bed.start(0, ["sleep", "1000"], {}, Path("log"))
            print(bed.hosts[0].seen_from_outside, flush=True)
            time.sleep(1000)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(bed)],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        seen = process.stdout.readline().strip()
        process.send_signal(signal.SIGKILL)
    assert _groups(process.pid)
    with Loopback(1):
        assert not _groups(process.pid)
    # What was ended takes a moment to be gone, on a busy machine.
    deadline = time.monotonic() + 30
    while Path(seen).exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(seen).exists()


def plan_for(model: str) -> Plan:
    """Whole gradients, the most urgent first."""
    from benchmarks.testbed.models import WORKLOADS  # only where torch is installed

    names = [(name, 4 * p.numel()) for name, p in WORKLOADS[model].build().named_parameters()]
    num = len(names)
    problem = Problem(
        gradients=tuple(
            Gradient(name=name, size_bytes=size, release_ns=num - i, need_ns=i)
            for i, (name, size) in enumerate(names)
        ),
        backward_ns=num,
        forward_ns=num,
        network=Link(ns_per_byte=1.0),
    )
    order = find_policy("prophet").compile(problem)
    section = CommunicationSection(mode=Mode.PIECES, problem=problem, order=order)
    return communication_plan(section, num_ranks=2)


@pytest.mark.more
def test_one_job_runs_blocks_of_several_configurations(tmp_path: Path):
    """Blocks continue the same training, wait at the gate, and report every step's time. The block
    after a plan has no trace of it."""
    plan = tmp_path / "any.plan.json"
    save_plan(plan_for("last"), plan)
    gate = tmp_path / "gate"
    gate.mkdir()
    for block in range(6):
        (gate / f"go-{block}").touch()
    command = [sys.executable, "-m", "benchmarks.testbed.train", "--model", "last", "--steps", "2"]
    blocks = [
        "--blocks",
        "base",
        "cap=1,4:3@list",
        f"plan={plan}",
        "--rounds",
        "2",
        "--warm-up",
        "1",
    ]
    options = ["--measured", "2", "--gate", str(gate), "--times", str(tmp_path)]
    with Loopback(2) as bed:
        jobs = [
            bed.start(
                rank,
                [*command, *blocks, *options],
                {
                    "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
                    "RANK": str(rank),
                    "WORLD_SIZE": "2",
                    "MASTER_ADDR": bed.hosts[rank].address,
                    "MASTER_PORT": "29517",
                    "GLOO_SOCKET_IFNAME": bed.hosts[rank].interface,
                    "OMP_NUM_THREADS": "1",
                },
                tmp_path / f"log-{rank}",
            )
            for rank in range(2)
        ]
        codes = [job.wait(timeout=100) for job in jobs]
        assert codes == [0, 0], (tmp_path / "log-0").read_text()
    for rank in range(2):
        times = json.loads((tmp_path / f"times-{rank:05d}.json").read_text())
        done = [(block["block"], len(block["stamps_ns"])) for block in times["blocks"]]
        each = (("base", 4), ("cap=1,4:3@list", 5), (f"plan={plan}", 4))
        assert done == [("base", 3), *each * 2]
        hooks = [block["num_hooks"] for block in times["blocks"][1:]]
        assert hooks[0] == hooks[1] == hooks[3] == hooks[4] == 0
        assert hooks[2] == hooks[5] > 0
        float.fromhex(times["loss"])
    assert leftover_hooks(tmp_path) == 0
    assert sorted(path.name for path in gate.glob("ready-*")) == [f"ready-{i}" for i in range(6)]


@pytest.mark.skipif(can_control(), reason="this machine has control groups")
def test_loopback_refuses_rates_and_quotas():
    with Loopback(1) as bed, pytest.raises(OSError, match="control groups"):
        bed.set_quota(0.5)
