"""Checkpoints, evaluation, copies, modes."""

from __future__ import annotations

import copy
import io
import pickle

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode

from augury.runtime.torch.pieces.sender import has_ended
from tests.runtime.trainings import (
    STEPS,
    Training,
    assert_same,
    bits,
    both,
    checksum,
    compare,
    train,
)


def saved_and_resumed() -> None:
    results = []
    for training in both(make_optimizer=lambda m: torch.optim.Adam(m.parameters(), lr=0.01)):
        train(training)
        saved = io.BytesIO()
        torch.save(
            {"model": training.model.state_dict(), "optimizer": training.optimizer.state_dict()},
            saved,
        )
        train(training)
        after = bits(training)
        saved.seek(0)
        states = torch.load(saved)
        training.step()  # something must be in flight
        training.model.load_state_dict(states["model"])
        training.optimizer.load_state_dict(states["optimizer"])
        training.step()
        results.append({**after, **{f"resumed {k}": v for k, v in bits(training).items()}})
    assert_same(*results)


def evaluation_between_steps() -> None:
    def steps(training: Training) -> None:
        inputs, _ = next(training.data)
        for n in range(2 * STEPS):
            training.step()
            training.model.eval()
            how = [torch.no_grad, torch.inference_mode, torch.enable_grad][n % 3]
            through = [training.model, training.model.module][n % 2]
            with how():
                training.notes.append(checksum(through(inputs).detach()))
            training.model.train()

    compare(steps, make_optimizer=lambda m: torch.optim.Adam(m.parameters(), lr=0.01))


def copies_and_pickles() -> None:
    def steps(training: Training) -> None:
        for _ in range(STEPS):
            training.step()
            twin = copy.deepcopy(training.model.module)
            again = pickle.loads(pickle.dumps(training.model.module))
            training.notes.append([checksum(p) for p in (*twin.parameters(), *again.parameters())])
            inputs, _ = next(training.data)
            training.notes.append(checksum(twin(inputs).detach()))

    compare(steps)


def parameters_as_arrays() -> None:
    def steps(training: Training) -> None:
        for _ in range(STEPS):
            training.step()
            training.notes.append(training.model.module.head.bias.data.numpy().sum().item())
            training.notes.append(checksum(training.model.module.norm.weight))

    compare(steps)


class Counting(TorchFunctionMode):
    count = 0

    def __torch_function__(self, func, _types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


def modes_of_the_program() -> None:
    """Contexts that are entered before backward and left after it, and the other way round."""
    before = torch._C._len_torch_function_stack()

    def steps(training: Training) -> None:
        for n in range(2 * STEPS):
            own = Counting()
            training.optimizer.zero_grad()
            with torch.device("cpu") if n % 2 else own:
                loss = training.loss()
            with own, torch.device("cpu"):
                loss.backward()
            with own:
                training.optimizer.step()
                count = own.count
                torch.zeros(1).add_(1)
                assert own.count > count
                loss = training.loss()
            loss.backward()
            count = own.count
            training.optimizer.step()
            assert own.count == count

    compare(steps)
    torch.set_default_device("cpu")
    compare(train)
    torch.set_default_device(None)
    assert torch._C._len_torch_function_stack() == before


def _as_it_is(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def asked_for_while_it_ends() -> None:
    """Under a profiler and with hooks for saved tensors, as in a recorder's detailed window, the
    thread that ends a communication wants the interpreter's lock: the one that asks must not keep
    it."""
    hooks = torch.autograd.graph.saved_tensors_hooks(_as_it_is, _as_it_is)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]), hooks:
        for _ in range(200):
            work = dist.all_reduce(torch.ones(1000), async_op=True)
            while not has_ended(work):
                pass
            work.wait()


def trained_under_profilers() -> None:
    """Each stops between steps, when gradients are in flight under a plan."""

    def steps(training: Training) -> None:
        hooks = torch.autograd.graph.saved_tensors_hooks(_as_it_is, _as_it_is)
        for _ in range(8):
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]), hooks:
                train(training)

    compare(steps)
