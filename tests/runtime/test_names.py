"""The runtime names parameters as recorded runs do, since plans are made from those."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from augury.capture.torch.modules import find_modules  # noqa: E402
from augury.runtime.torch.program.parameter_names import matched, own_parameters  # noqa: E402


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2, bias=False))
        self.body[1].weight = self.body[0].weight
        self.own = torch.nn.Parameter(torch.ones(2))
        self.frozen = torch.nn.Linear(2, 2).requires_grad_(False)
        self.frozen._checkpoint_wrapped_module = torch.nn.Linear(2, 2)


def test_runtime_and_recorder_use_the_same_names() -> None:
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    recorded = find_modules([optimizer]).name_of_parameter
    assert {name: id(p) for name, p in own_parameters(model).items()} == {
        name: parameter_id for parameter_id, name in recorded.items()
    }


def test_names_of_a_larger_model_match_by_suffix() -> None:
    assert matched(["a.w", "w"], ["w", "a.w"]) == {"w": "w", "a.w": "a.w"}
    assert matched(["a.w", "w"], ["net.w", "net.a.w"]) == {"net.w": "w", "net.a.w": "a.w"}
    assert matched(["a.w", "w"], ["net.w", "other.a.w"]) is None
    assert matched(["a.w"], ["a.w", "b"]) is None
    assert matched([], []) is None
    assert matched(["aw"], ["a.w"]) is None
