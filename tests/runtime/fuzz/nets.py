"""The network of a program: a first layer, blocks, and a head with classes."""

from __future__ import annotations

import torch
from torch import nn

from tests.runtime.fuzz.blocks import BLOCKS
from tests.runtime.fuzz.program import Block, Program

NUM_CLASSES = 5


class Trap(torch.autograd.Function):
    """Backward raises ``error``."""

    @staticmethod
    def forward(ctx, value, error):
        ctx.error = error
        return value.clone()

    @staticmethod
    def backward(ctx, _gradient):
        raise ctx.error("trap")


class Net(nn.Module):
    """``fails`` of a call: an exception in forward, or in backward at its start or its middle."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        width = program.width
        self.kinds: tuple[Block, ...] = program.blocks
        self.base = nn.Linear(width, width)
        self.blocks = nn.ModuleList()
        for block in program.blocks:
            module = BLOCKS[block.kind](width)
            if block.kind == "tied":
                module.layer.weight = self.base.weight
            elif block.kind == "outside":
                module.owner.append(self.base)
            self.blocks.append(module)
        self.head = nn.Linear(width, NUM_CLASSES)
        self.to(getattr(torch, program.dtype))
        for block, module in zip(program.blocks, self.blocks, strict=True):
            if block.dtype:
                module.to(getattr(torch, block.dtype))
        if program.channels_last:
            self.to(memory_format=torch.channels_last)
        self.output = program.output

    def forward(self, hidden, tokens, turn: int = 0, fails: str = ""):
        hidden = self.base(hidden).tanh()
        for number, (block, module) in enumerate(zip(self.kinds, self.blocks, strict=True)):
            is_used = block.kind != "optional" or turn % block.every == 0
            if is_used and block.dtype:
                inner = module(hidden.to(getattr(torch, block.dtype)), tokens)
                hidden = inner.to(hidden.dtype)
            elif is_used:
                hidden = module(hidden, tokens)
            if fails == "forward" and number == len(self.blocks) // 2:
                raise ValueError("trap")
            if fails == "middle" and number == len(self.blocks) // 2:
                hidden = Trap.apply(hidden, ValueError)
        output = self.head(hidden.mean(1))
        if fails == "start":
            output = Trap.apply(output, ValueError)
        if fails == "interrupt":
            output = Trap.apply(output, KeyboardInterrupt)
        if self.output == "dict":
            return {"logits": output}
        return (output, None) if self.output == "tuple" else output
