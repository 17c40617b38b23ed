"""Layer under construction: sums over its traced operations."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from augury.core.model import LayerKind, ModelLayer
from augury.oracle.model_reader.operations import (
    Shape,
    SlidingWindow,
    TracedOperation,
    features_first,
    sample_shape,
)
from augury.oracle.model_reader.saved_tensors import Held


@dataclass(slots=True)
class TracedWork:
    """Work of one direction, over the whole batch."""

    flops: int = 0
    moved_bytes: int = 0
    most_held_bytes: int = 0

    def add(self, operation: TracedOperation, held: Held, batch: int) -> None:
        self.flops += operation.flops
        self.most_held_bytes = max(self.most_held_bytes, held.with_batch_bytes)
        if operation.moves_data:
            self.moved_bytes += sum(
                _bytes(tensor)
                for tensor in (*operation.inputs, *operation.outputs)
                if grows(tensor, batch)
            )


@dataclass(slots=True, eq=False)
class LayerDraft:
    name: str
    kind: LayerKind = LayerKind.OTHER
    weight: int = -1
    window: SlidingWindow = field(default_factory=SlidingWindow)
    input_shape: Shape | None = None
    output_shape: Shape = ()
    num_parameters: int = 0
    kept_bytes: int = 0
    forward: TracedWork = field(default_factory=TracedWork)
    backward: TracedWork = field(default_factory=TracedWork)

    @property
    def is_empty(self) -> bool:
        return not (self.num_parameters or self.forward.moved_bytes or self.kept_bytes)

    def add_forward(self, operation: TracedOperation, held: Held, batch: int) -> None:
        self.forward.add(operation, held, batch)
        if operation.moves_data and operation.weight > self.weight:
            self.weight, self.kind, self.window = (
                operation.weight,
                operation.kind,
                operation.window,
            )
        shape = features_first if operation.kind is LayerKind.LINEAR else sample_shape
        if operation.moves_data:
            taken = [tensor for tensor in operation.inputs if grows(tensor, batch)]
            given = [tensor for tensor in operation.outputs if grows(tensor, batch)]
            if taken and self.input_shape is None:
                self.input_shape = shape(taken[0], batch)
            if given:
                self.output_shape = shape(given[0], batch)

    def finish(self, *, batch: int, item_bytes: int, kept_before_bytes: int) -> ModelLayer:
        """Returns the layer. ``kept_before_bytes`` are saved by earlier layers, which backward
        visits later, so that they are held at the same time."""

        def items(size_bytes: int) -> int:
            return -(-size_bytes // (batch * item_bytes))

        kept_bytes = kept_before_bytes + self.kept_bytes
        return ModelLayer(
            name=self.name,
            kind=self.kind,
            input_shape=self.input_shape or (),
            output_shape=self.output_shape,
            kernel=self.window.kernel,
            stride=self.window.stride,
            padding=self.window.padding,
            groups=self.window.groups,
            num_parameters=self.num_parameters,
            forward_flops=self.forward.flops // batch,
            backward_flops=self.backward.flops // batch,
            forward_items=items(self.forward.moved_bytes),
            backward_items=items(self.backward.moved_bytes),
            saved_items=items(self.kept_bytes),
            forward_transient_items=items(max(0, self.forward.most_held_bytes - kept_bytes)),
            backward_transient_items=items(max(0, self.backward.most_held_bytes - kept_bytes)),
        )


def grows(tensor: Tensor, batch: int) -> bool:
    """Whether a tensor grows with the batch: a prime of which few other extents are multiples."""
    num_items = int(tensor.numel())
    return num_items > 0 and num_items % batch == 0


def _bytes(tensor: Tensor) -> int:
    size: int = tensor.numel() * tensor.element_size()
    return size
