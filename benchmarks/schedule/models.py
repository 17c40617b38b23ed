"""Tensors of real models, computed from their architectures: bytes and arithmetic of every layer,
in forward order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer. ``tensors`` are parameter counts; ``work`` is the multiply-adds of the forward of
    one image or one sequence."""

    name: str
    tensors: tuple[int, ...]
    work: float


def resnet50() -> Iterator[Layer]:
    yield from _conv("stem", 3, 64, 7, 7, 112)
    before = 64
    for stage, (blocks, width, side) in enumerate(
        ((3, 64, 56), (4, 128, 28), (6, 256, 14), (3, 512, 7))
    ):
        for block in range(blocks):
            name = f"{stage}.{block}"
            yield from _conv(f"{name}.1", before, width, 1, 1, side)
            yield from _conv(f"{name}.2", width, width, 3, 3, side)
            yield from _conv(f"{name}.3", width, 4 * width, 1, 1, side)
            if block == 0:
                yield from _conv(f"{name}.down", before, 4 * width, 1, 1, side)
            before = 4 * width
    yield _linear("fc", 2048, 1000, 1)


def vgg16() -> Iterator[Layer]:
    before, side = 3, 224
    for stage, (convs, width) in enumerate(((2, 64), (2, 128), (3, 256), (3, 512), (3, 512))):
        for conv in range(convs):
            weights = before * width * 9
            yield Layer(
                name=f"{stage}.{conv}", tensors=(weights, width), work=weights * side * side
            )
            before = width
        side //= 2
    yield _linear("fc6", 512 * 7 * 7, 4096, 1)
    yield _linear("fc7", 4096, 4096, 1)
    yield _linear("fc8", 4096, 1000, 1)


def inception_v3() -> Iterator[Layer]:
    for name, (before, width, high, wide, side) in {
        "1a": (3, 32, 3, 3, 149),
        "2a": (32, 32, 3, 3, 147),
        "2b": (32, 64, 3, 3, 147),
        "3b": (64, 80, 1, 1, 73),
        "4a": (80, 192, 3, 3, 71),
    }.items():
        yield from _conv(name, before, width, high, wide, side)
    for name, before, pool in (("5b", 192, 32), ("5c", 256, 64), ("5d", 288, 64)):
        yield from _branches(name, before, 35, [[(64, 1, 1)], [(48, 1, 1), (64, 5, 5)]])
        yield from _branches(
            name + "+", before, 35, [[(64, 1, 1), (96, 3, 3), (96, 3, 3)], [(pool, 1, 1)]]
        )
    yield from _branches("6a", 288, 17, [[(384, 3, 3)], [(64, 1, 1), (96, 3, 3), (96, 3, 3)]])
    for name, width in (("6b", 128), ("6c", 160), ("6d", 160), ("6e", 192)):
        line = [(width, 1, 1), (width, 1, 7), (192, 7, 1)]
        double = [(width, 1, 1), (width, 7, 1), (width, 1, 7), (width, 7, 1), (192, 1, 7)]
        yield from _branches(name, 768, 17, [[(192, 1, 1)], line, double, [(192, 1, 1)]])
    yield from _branches(
        "7a",
        768,
        8,
        [[(192, 1, 1), (320, 3, 3)], [(192, 1, 1), (192, 1, 7), (192, 7, 1), (192, 3, 3)]],
    )
    for name, before in (("7b", 1280), ("7c", 2048)):
        yield from _branches(name, before, 8, [[(320, 1, 1)], [(384, 1, 1), (384, 1, 3)]])
        yield from _branches(name + "+", 384, 8, [[(384, 3, 1)]])
        yield from _branches(name + "-", before, 8, [[(448, 1, 1), (384, 3, 3), (384, 1, 3)]])
        yield from _branches(name + "|", 384, 8, [[(384, 3, 1)]])
        yield from _branches(name + "=", before, 8, [[(192, 1, 1)]])
    yield _linear("fc", 2048, 1000, 1)


def bert_base() -> Iterator[Layer]:
    return _bert(layers=12, width=768)


def bert_large() -> Iterator[Layer]:
    return _bert(layers=24, width=1024)


def gpt2() -> Iterator[Layer]:
    width, tokens = 768, 1024
    yield Layer(name="wte", tensors=(50257 * width,), work=tokens * width)
    yield Layer(name="wpe", tensors=(1024 * width,), work=tokens * width)
    for block in range(12):
        yield _norm(f"{block}.ln1", width, tokens)
        yield _linear(f"{block}.attn", width, 3 * width, tokens, tokens * tokens * width * 2)
        yield _linear(f"{block}.proj", width, width, tokens)
        yield _norm(f"{block}.ln2", width, tokens)
        yield _linear(f"{block}.fc", width, 4 * width, tokens)
        yield _linear(f"{block}.out", 4 * width, width, tokens)
    yield _norm("ln", width, tokens)


MODELS: dict[str, Callable[[], Iterator[Layer]]] = {
    "resnet50": resnet50,
    "vgg16": vgg16,
    "inception-v3": inception_v3,
    "bert-base": bert_base,
    "bert-large": bert_large,
    "gpt2": gpt2,
}


def _bert(*, layers: int, width: int) -> Iterator[Layer]:
    tokens = 128
    for name, rows in (("word", 30522), ("position", 512), ("type", 2)):
        yield Layer(name=name, tensors=(rows * width,), work=tokens * width)
    yield _norm("embeddings", width, tokens)
    for layer in range(layers):
        for part in ("q", "k", "v", "o"):
            extra = tokens * tokens * width if part in "vo" else 0
            yield _linear(f"{layer}.{part}", width, width, tokens, extra)
        yield _norm(f"{layer}.norm1", width, tokens)
        yield _linear(f"{layer}.up", width, 4 * width, tokens)
        yield _linear(f"{layer}.down", 4 * width, width, tokens)
        yield _norm(f"{layer}.norm2", width, tokens)
    yield _linear("pooler", width, width, 1)


def _conv(name: str, before: int, width: int, high: int, wide: int, side: int) -> Iterator[Layer]:
    """A convolution with its batch normalization, whose work is proportional to its bytes."""
    weights = before * width * high * wide
    yield Layer(name=name, tensors=(weights,), work=weights * side * side)
    yield Layer(name=f"{name}.bn", tensors=(width, width), work=width * side * side * 20)


def _branches(
    name: str, before: int, side: int, branches: list[list[tuple[int, int, int]]]
) -> Iterator[Layer]:
    for nth, branch in enumerate(branches):
        into = before
        for step, (width, high, wide) in enumerate(branch):
            yield from _conv(f"{name}.{nth}.{step}", into, width, high, wide, side)
            into = width


def _linear(name: str, before: int, width: int, tokens: int, extra: float = 0) -> Layer:
    return Layer(name=name, tensors=(before * width, width), work=before * width * tokens + extra)


def _norm(name: str, width: int, tokens: int) -> Layer:
    return Layer(name=name, tensors=(width, width), work=width * tokens * 20)
