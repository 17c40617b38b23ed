"""Changes the buckets of a live DistributedDataParallel by replacing its reducer: their sizes, and
the number format in which they travel."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch
from torch.nn.parallel import distributed as ddp

from augury.core.plan.sections import CompressionSection
from augury.runtime.torch.sections.compression import register_compression

_MIB = 1 << 20


class LiveBuckets:
    """The buckets of a model, which can change between steps. Reducers that are not in use ignore
    gradients. They are kept, because a new one first rebuilds its buckets, for which ranks wait
    for each other in a forward."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._parameters, self._is_sparse = model._build_params_for_reducer()
        self._names = model._build_debug_param_to_name_mapping(self._parameters)
        self._caps: tuple[int, ...] | None = None
        self._compression: CompressionSection | None = None
        self._configs: dict[tuple[int, ...] | None, Any] = {None: model._bucket_config}
        self._reducers: dict[Any, Any] = {}
        """Reducers that are not in use, by bucket sizes and compression."""
        self._is_new = False
        """Whether the reducer is new and has exchanged nothing yet."""

    def use(
        self,
        caps_bytes: tuple[int, ...] | None,
        compression: CompressionSection | None = None,
        *,
        is_renewed: bool = False,
    ) -> None:
        """Sets the n-th size for the n-th bucket, the last for all further ones; None: the sizes of
        the program. ``is_renewed``: the reducer is replaced in any case."""
        model = self._model
        was, now = (self._caps, self._compression), (caps_bytes, compression)
        if now == was and not is_renewed:
            return
        if is_renewed:
            self._reducers.clear()
        else:
            self._reducers[was] = model.reducer, model.logger
        self._caps, self._compression = now
        if caps_bytes is not None and caps_bytes not in self._configs:
            self._configs[caps_bytes] = _config(caps_bytes)
        config = model._bucket_config = self._configs[caps_bytes]
        model.bucket_bytes_cap = config.bucket_bytes_cap
        model.bucket_bytes_cap_list = list(config.per_bucket_bytes_caps)
        model.bucket_bytes_cap_default = config.first_bucket_bytes_cap < config.bucket_bytes_cap
        model.reducer, model.logger = self._reducers.pop(now, (None, None))
        if model.reducer is None:
            self._make_reducer()
            if compression is not None:
                register_compression(model, model.reducer, compression)

    def _make_reducer(self) -> None:
        model, parameters = self._model, self._parameters
        frozen = [one for one in parameters if not one.requires_grad]
        for one in frozen:  # frozen after wrapping: the reducer has them all the same
            one.requires_grad_(True)
        try:
            model._ddp_init_helper(parameters, self._is_sparse, self._names, model.static_graph)
        finally:
            for one in frozen:
                one.requires_grad_(False)
        model._has_rebuilt_buckets = False
        self._is_new = True

    def arrange(self) -> None:
        """Rebuilds the buckets of a new reducer after its first exchange. All ranks call this
        during the last gradients of an exchange. DDP would do so in the next forward, which the
        program may run on one rank alone, while ranks wait for each other in it."""
        if self._is_new:
            self._is_new = False
            # After the reducer's own end of the exchange, which is already queued.
            torch.autograd.Variable._execution_engine.queue_callback(self._rebuild)

    def _rebuild(self) -> None:
        with suppress(RuntimeError):  # within a nested backward: DDP does it in the next forward
            if self._model.reducer._rebuild_buckets():
                self._model._has_rebuilt_buckets = True

    def close(self) -> None:
        """Restores the buckets of the program and drops all other reducers."""
        self.use(None)
        self._reducers.clear()


def why_no_buckets(model: Any) -> str | None:
    """Returns why buckets cannot be changed: internals of DistributedDataParallel differ between
    versions of torch."""
    config = getattr(ddp, "_BucketCapacityConfig", None)
    parts = ("_bucket_config", "_build_params_for_reducer", "_ddp_init_helper")
    if config is None or not all(hasattr(model, name) for name in parts):
        return "bucket sizes of a live model cannot be changed with this version of torch"
    return None


def _config(caps_bytes: tuple[int, ...]) -> Any:
    caps = [size_bytes / _MIB for size_bytes in caps_bytes]
    several = caps if len(caps) > 1 else None
    return ddp._BucketCapacityConfig.create(caps[-1], several, False)
