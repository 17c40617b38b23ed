"""Section ``loader``: processes that load the batches of the program's own DataLoaders.

Indices are drawn from the program's sampler in their order, and the worker processes only fetch. A
fetch that uses a shared random state, changes the dataset or fails is repeated in the program's own
process, as are all that follow: batches are the same bits in the same order.
"""

from __future__ import annotations

import functools
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, get_worker_info, sampler
from torch.utils.data._utils import signal_handling
from torch.utils.data._utils.fetch import _MapDatasetFetcher
from torch.utils.data.dataloader import _DatasetKind, _SingleProcessDataLoaderIter
from torch.utils.data.distributed import DistributedSampler

from augury.core.plan.plan import PlanSection
from augury.core.plan.sections import LoaderSection
from augury.runtime.plan_reports import note_applied, note_refusal
from augury.runtime.torch.sections.rehearsal import changed_generator, random_states
from augury.runtime.torch.sections.shareable import content_digest, why_not_shareable

TIMEOUT_S = 60.0
"""Longest wait for a batch of a worker, which may have died. After it, the program's own process
loads the batch."""
LEAST_BATCHES = 8
"""Batches of an epoch, per worker, for which starting processes is worthwhile."""
_SAMPLERS = (
    sampler.SequentialSampler,
    sampler.SubsetRandomSampler,
    sampler.WeightedRandomSampler,
    DistributedSampler,
)
"""They use shared random states for their first index at most."""
_TRUSTED = ("accelerate", "transformers", "lightning", "pytorch_lightning")


class LoaderWorkers:
    """Replaces how DataLoaders are iterated, from now on."""

    def __init__(self, section: LoaderSection, *, rank: int) -> None:
        self._section, self._rank = section, rank
        self.is_applied = False
        self.trouble: str | None = None
        """Why a loader kept its own way."""
        self._is_on = True
        self._accepted: weakref.WeakSet[Any] = weakref.WeakSet()
        self._refused: weakref.WeakSet[Any] = weakref.WeakSet()
        self._was = was = DataLoader.__iter__
        workers = self

        @functools.wraps(was)
        def iterate(loader: Any) -> Any:
            return workers._iterate(loader)

        self._new = iterate
        DataLoader.__iter__ = iterate

    def why_not(self) -> str | None:
        return None if self.is_applied else self.trouble

    def use(self, is_on: bool) -> None:
        """Workers cannot be switched between steps."""

    def rehearse(self, is_on: bool) -> None:
        """Nothing has to be tried first."""

    def close(self) -> None:
        """Loaders are iterated in the program's own way again, from their next epoch on."""
        self._is_on = False
        if DataLoader.__iter__ is self._new:
            DataLoader.__iter__ = self._was

    def _iterate(self, loader: Any) -> Any:
        is_wanted = self._is_on and torch.is_grad_enabled() and loader not in self._refused
        if not is_wanted or get_worker_info() is not None:
            return self._was(loader)
        if loader not in self._accepted:
            try:
                reason = why_not(loader, self._section)
            except Exception as error:
                reason = str(error)
            if reason is not None:
                self._refused.add(loader)
                if not self.is_applied:
                    self._report(reason)
                return self._was(loader)
            self._accepted.add(loader)
        own = self._was(loader)
        if type(own) is not _SingleProcessDataLoaderIter:
            return own
        if not self.is_applied:
            self.is_applied = True
            note_applied(PlanSection.LOADER)
        return _WorkerBatches(
            loader, own, self._section, self._was, functools.partial(self._give_up, loader)
        )

    def _give_up(self, loader: Any, reason: str) -> None:
        """Workers have failed for this loader."""
        self._refused.add(loader)
        self.is_applied = False
        self._report(reason)

    def _report(self, reason: str) -> None:
        is_new, self.trouble = reason != self.trouble, reason
        if is_new:
            note_refusal(PlanSection.LOADER, reason, is_said=self._rank == 0)


def why_not(loader: Any, section: LoaderSection) -> str | None:
    if loader._dataset_kind != _DatasetKind.Map:
        return "the dataset is iterable: only its own process knows the order of its samples"
    if loader.num_workers:
        return f"the DataLoader has num_workers={loader.num_workers} already"
    if loader.timeout or loader.worker_init_fn is not None:
        return "the DataLoader has settings for workers of its own"
    reason = _why_not_sampler(loader._index_sampler)
    if reason is not None:
        return reason
    num_batches = len(loader)
    if num_batches < LEAST_BATCHES * section.num_workers:
        return f"epochs of {num_batches} batches are too short to start processes for"
    for what, value in (("dataset", loader.dataset), ("collate_fn", loader.collate_fn)):
        reason = why_not_shareable(value)
        if reason is not None:
            return f"the {what} {reason}"
    return None


def _why_not_sampler(given: Any) -> str | None:
    kind = type(given)
    if kind is sampler.BatchSampler:
        return _why_not_sampler(given.sampler)
    if kind is sampler.RandomSampler:
        if given.replacement and given.generator is not None:
            return "the sampler draws from a generator of the program for each index"
        return None
    if kind in _SAMPLERS or kind.__module__.partition(".")[0] in _TRUSTED:
        return None
    return f"the sampler {kind.__name__} is the program's own and may depend on the training"


class _BatchFetcher:
    """The dataset of the workers: fetches whole batches, and says whether another process may."""

    def __init__(self, loader: Any) -> None:
        self._loader_parts = (
            loader.dataset,
            loader._auto_collation,
            loader.collate_fn,
            loader.drop_last,
        )
        self._fetcher: Any = None
        self._is_first = True
        """Whether the dataset is compared with what it was before the fetch."""

    def __getitem__(self, indices: Any) -> tuple[Any, str | None]:
        if self._fetcher is None:
            self._fetcher = _MapDatasetFetcher(*self._loader_parts)
        dataset = self._loader_parts[0]
        states = random_states()
        before = content_digest(dataset) if self._is_first else b""
        try:
            batch = self._fetcher.fetch(indices)
        except Exception as error:
            return None, f"a fetch failed: {type(error).__name__}"
        generator = changed_generator(states)
        if generator is not None:
            return None, f"a fetch uses the random state of {generator}"
        if self._is_first:
            self._is_first = False
            if content_digest(dataset) != before:
                return None, "a fetch changes the dataset"
            reason = why_not_shareable(batch)
            if reason is not None:
                return None, f"a batch {reason}"
        return batch, None


def _as_it_is(batch: Any) -> Any:
    return batch


class _WorkerBatches:
    """Iterates over the batches of one epoch. ``own`` is the program's iterator: it has drawn from
    the random states what the program expects, and fetches where workers cannot."""

    def __init__(
        self,
        loader: Any,
        own: Any,
        section: LoaderSection,
        iterate: Callable[[Any], Any],
        give_up: Callable[[str], None],
    ) -> None:
        self._own, self._give_up = own, give_up
        self._indices = _DrawnIndices(own._sampler_iter)
        self._batches: Any = None
        self._start: Callable[[], Any] | None = functools.partial(
            _started, loader, section, iterate, self._indices
        )

    def __iter__(self) -> Any:
        return self

    def __len__(self) -> int:
        return len(self._own)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def __next__(self) -> Any:
        if self._start is not None:
            # Where the program's own iterator draws its first indices.
            start, self._start = self._start, None
            self._batches = self._attempt(start)
        if self._batches is not None:
            found = self._attempt(self._from_workers)
            if found is not None:
                self._own._num_yielded += 1
                return found[0]
        if self._indices.pending:
            self._own._num_yielded += 1
            return self._own._dataset_fetcher.fetch(self._indices.pending.popleft())
        if self._indices.error is not None:
            raise self._indices.error
        return next(self._own)

    def _from_workers(self) -> Any:
        try:
            batch, reason = next(self._batches)
        except StopIteration:
            self._batches = None
            return None
        if reason is not None:
            raise RuntimeError(reason)
        self._indices.pending.popleft()
        return (batch,)

    def _attempt(self, action: Callable[[], Any]) -> Any:
        """Runs an action of the workers. Where it fails, the program's own process goes on."""
        try:
            return action()
        except Exception as error:
            batches, self._batches = self._batches, None
            if batches is not None:
                batches._shutdown_workers()
            first = (str(error).strip() or type(error).__name__).splitlines()[0]
            self._give_up(first[:200])
            return None


class _DrawnIndices:
    """The sampler of the workers: draws from the program's, and keeps what was drawn ahead."""

    def __init__(self, indices: Iterator[Any]) -> None:
        self._indices = indices
        self.pending: deque[Any] = deque()
        """Indices of batches that were given to workers and have not arrived, in order."""
        self.error: Exception | None = None
        """The program's own sampler has failed."""

    def __iter__(self) -> Iterator[Any]:
        while True:
            try:
                drawn = next(self._indices)
            except StopIteration:
                return
            except Exception as error:
                self.error = error
                return
            self.pending.append(drawn)
            yield drawn


def _started(
    loader: Any, section: LoaderSection, iterate: Callable[[Any], Any], indices: _DrawnIndices
) -> Any:
    batches: Any = DataLoader(
        _BatchFetcher(loader),
        batch_size=None,
        sampler=indices,
        num_workers=section.num_workers,
        prefetch_factor=section.prefetch_factor,
        collate_fn=_as_it_is,
        timeout=TIMEOUT_S,
        generator=torch.Generator(),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about more processes than cores
        begun = iterate(batches)
    # Torch would interrupt the program anywhere when a worker dies.
    signal_handling._remove_worker_pids(id(begun))
    begun._worker_pids_set = False
    return begun
