"""Programs that train with Hugging Face, accelerate, Lightning, timm and FSDP2 are recorded."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.trainers.recorded_programs import PROGRAMS, record_program, single, two_ranks

pytestmark = [
    pytest.mark.more,
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed"),
]

OFFLINE = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

TIMM = Path(sys.prefix) / "timm"
"""Folder of timm and torchvision, which the Makefile keeps apart from other packages."""


def needs(package: str) -> pytest.MarkDecorator:
    missing = find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"{package} is not installed (make test-more)")


@needs("transformers")
@pytest.mark.parametrize(
    "arguments",
    [("--model", "bert"), ("--model", "gpt2", "--accumulate", "2", "--evaluate-every", "10")],
    ids=["bert", "gpt2"],
)
def test_hugging_face_trainer(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    run = record_program(
        tmp_path, two_ranks("hf_trainer.py", "--steps", "40", *arguments), **OFFLINE
    )
    assert run.num_steps() == 40
    run.assert_told_apart()
    run.assert_replays()


@needs("accelerate")
def test_accelerate_under_torchrun(tmp_path: Path) -> None:
    arguments = ("--steps", "40", "--accumulate", "2", "--batch", "32", "--clip")
    run = record_program(tmp_path, two_ranks("accelerate_loop.py", *arguments), **OFFLINE)
    assert run.num_steps() == 40
    run.assert_told_apart()
    run.assert_replays()


@needs("accelerate")
def test_accelerate_with_its_own_launcher(tmp_path: Path) -> None:
    launch = [
        # The launcher starts several processes only if it takes them for processes with GPUs.
        *(sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes=2"),
        *("--num_machines=1", "--mixed_precision=no", "--dynamo_backend=no"),
        "--main_process_port=0",
    ]
    command = [*launch, str(PROGRAMS / "accelerate_loop.py"), "--steps", "40", "--model", "conv"]
    run = record_program(tmp_path, command, **OFFLINE)
    assert run.num_steps() == 40
    run.assert_told_apart()
    run.assert_replays()


@needs("lightning")
@pytest.mark.parametrize("is_torchrun", [False, True], ids=["own-launcher", "torchrun"])
def test_lightning(tmp_path: Path, is_torchrun: bool) -> None:
    make = two_ranks if is_torchrun else single
    run = record_program(tmp_path, make("lightning_fit.py", "--steps", "40", "--clip"))
    assert run.num_steps() == 40
    run.assert_told_apart()
    run.assert_replays()
    assert len(run.graph.gradients)


@needs("lightning")
def test_lightning_with_evaluation_in_one_process(tmp_path: Path) -> None:
    arguments = ("--steps", "40", "--ranks", "1", "--evaluate-every", "5", "--save")
    run = record_program(tmp_path, single("lightning_fit.py", *arguments), num_ranks=1)
    assert run.num_steps() == 40
    run.assert_told_apart()
    run.assert_replays()


@pytest.mark.skipif(not TIMM.exists(), reason="timm is not installed (make test-more)")
@pytest.mark.parametrize("model", ["resnet10t", "vit_tiny_patch16_224"])
def test_timm(tmp_path: Path, model: str) -> None:
    command = two_ranks("timm_loop.py", "--steps", "40", "--model", model)
    run = record_program(tmp_path, command, PYTHONPATH=str(TIMM), **OFFLINE)
    assert run.num_steps() == 40
    run.assert_told_apart()
    run.assert_replays()


@pytest.mark.parametrize("arguments", [("--model", "mlp"), ("--model", "transformer", "--clip")])
def test_fsdp2(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    run = record_program(tmp_path, two_ranks("fsdp2_loop.py", "--steps", "40", *arguments))
    assert run.num_steps() == 40
    run.assert_told_apart()
    run.assert_replays()
