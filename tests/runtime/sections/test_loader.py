"""Worker processes load the same batches, in the same order, as the program itself."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler  # noqa: E402

from augury.core.plan.plan import PlanSection  # noqa: E402
from augury.core.plan.plan_board import board  # noqa: E402
from augury.core.plan.sections import LoaderSection  # noqa: E402
from augury.runtime.torch.sections import loader  # noqa: E402
from augury.runtime.torch.sections.loader import LoaderWorkers, why_not  # noqa: E402
from augury.runtime.torch.sections.shareable import content_digest, why_not_shareable  # noqa: E402

SECTION = LoaderSection(num_workers=1)


class Numbers(Dataset):
    """``act`` is called with the index of each sample that is fetched."""

    def __init__(self, act=None) -> None:
        self.act = act
        self.seen = 0

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index):
        shift = self.act(self, index) if self.act is not None else 0
        return torch.tensor([index, shift], dtype=torch.float32)


def _counts(data, _index):
    data.seen += 1
    return 0


def _draws(_data, index):
    return random.random() if index % 7 == 3 else 0


def _draws_in_torch(_data, index):
    return torch.rand(()).item() if index == 20 else 0


def _fails(_data, index):
    if index == 25:
        raise KeyError("sample 25 is missing")
    return 0


@pytest.fixture
def workers() -> Iterator[LoaderWorkers]:
    board.status = None
    own = DataLoader.__iter__
    workers = LoaderWorkers(SECTION, rank=1)
    yield workers
    workers.close()
    assert DataLoader.__iter__ is own


def _epochs(act) -> list[object]:
    """Two epochs of a training that draws random numbers between batches."""
    torch.manual_seed(4)
    random.seed(4)
    batches = DataLoader(Numbers(act), batch_size=4, shuffle=True)
    found: list[object] = []
    try:
        for _ in range(2):
            for batch in batches:
                found.append(batch.tolist())
                found.append((torch.rand(()).item(), random.random()))
    except KeyError as error:
        found.append(str(error))
    return found


@pytest.mark.more
@pytest.mark.parametrize(
    ("act", "reason"),
    [
        (None, None),
        (_counts, "a fetch changes the dataset"),
        (_draws, "a fetch uses the random state of Python"),
        (_draws_in_torch, "a fetch uses the random state of torch"),
        (_fails, "a fetch failed: KeyError"),
    ],
)
def test_batches_are_those_of_the_program(
    act, reason: str | None, request: pytest.FixtureRequest
) -> None:
    own = _epochs(act)
    workers = request.getfixturevalue("workers")
    assert _epochs(act) == own
    assert workers.is_applied == (reason is None)
    assert workers.trouble == reason
    assert board.status is not None
    (status,) = board.status.sections
    assert status.section is PlanSection.LOADER
    assert status.reason == reason


@pytest.mark.more
@pytest.mark.usefixtures("workers")
def test_a_worker_that_dies_is_replaced_by_the_program_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its death interrupts no other code of the program."""
    monkeypatch.setattr(loader, "TIMEOUT_S", 3.0)
    batches = iter(DataLoader(Numbers(), batch_size=4))
    found = [next(batches)]
    for process in batches._batches._workers:
        process.kill()
        process.join()
    found += [*batches]
    assert torch.cat(found)[:, 0].tolist() == [*range(40)]


def test_evaluations_load_in_their_own_process(workers: LoaderWorkers) -> None:
    with torch.no_grad():
        assert len([*DataLoader(Numbers(), batch_size=4)]) == 10
    assert not workers.is_applied
    assert workers.trouble is None


class _Endless(IterableDataset):
    def __iter__(self):
        return iter(range(100))


class _OwnOrder(Sampler):
    def __iter__(self):
        return iter(range(40))

    def __len__(self) -> int:
        return 40


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (lambda: DataLoader(Numbers(), batch_size=4), None),
        (lambda: DataLoader(Numbers(lambda *_: 0), batch_size=4), None),
        (lambda: DataLoader(_Endless()), "the dataset is iterable"),
        (lambda: DataLoader(Numbers(), num_workers=1), "num_workers=1 already"),
        (lambda: DataLoader(Numbers(), batch_size=8), "epochs of 5 batches are too short"),
        (lambda: DataLoader(Numbers(), sampler=_OwnOrder()), "the sampler _OwnOrder"),
        (lambda: DataLoader(Numbers(), worker_init_fn=print), "settings for workers"),
    ],
)
def test_loaders_that_cannot_have_workers_are_refused(made, reason: str | None) -> None:
    found = why_not(made(), SECTION)
    assert (found is None) if reason is None else reason in (found or "")


def test_open_files_and_generators_are_not_shared(tmp_path: Path) -> None:
    with (tmp_path / "samples").open("w") as file:
        assert "cannot be shared" in (why_not_shareable([1, {"file": file}]) or "")
        assert "cannot be shared" in (why_not_shareable(lambda: file) or "")
    for generator in (random.Random(1), torch.Generator()):
        data = Numbers()
        data.act = generator
        assert why_not_shareable(data) == "has a random generator of its own"
    assert why_not_shareable([torch.ones(3), len, Numbers, lambda one=1: one]) is None


def test_the_digest_sees_changes_of_tensors_in_place() -> None:
    data = Numbers()
    data.act = torch.zeros(3)
    before = content_digest(data)
    assert content_digest(data) == before
    data.act += 1
    assert content_digest(data) != before
