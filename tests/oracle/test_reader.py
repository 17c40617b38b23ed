"""Facts read from a module without data, compared with torch's own counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from augury.cli.main import main
from augury.core.errors import InputError
from augury.core.model import LayerKind, Model
from augury.oracle.model_reader.read_model import load_model, parse_shape, read_module

torch = pytest.importorskip("torch")
nn = torch.nn
F = torch.nn.functional


class Residual(nn.Module):
    def __init__(self, groups: int = 2) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)
        self.second = nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=groups)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = self.relu(self.norm(self.first(x)))
        x = x + self.relu(self.second(x))
        return self.head(torch.flatten(F.max_pool2d(x, 2).mean((2, 3)), 1))


class Functional(nn.Module):
    """No module but itself: torch's functions, and parameters of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Identity()
        self.weight = nn.Parameter(torch.randn(8, 3, 3, 3))
        self.out = nn.Parameter(torch.randn(8, 8, 1, 1))
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        x = F.relu(F.conv2d(self.inner(x), self.weight))
        return F.conv2d(x, self.out).sum((2, 3)) * self.scale


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(100, 16)
        self.body = nn.Linear(16, 16)
        self.unembed = nn.Linear(16, 100, bias=False)
        self.unembed.weight = self.embed.weight

    def forward(self, tokens):
        return self.unembed(self.body(self.body(self.embed(tokens))))


def by_name(model: Model) -> dict:
    return {layer.name: layer for layer in model.layers}


def kept_bytes(module, x) -> int:
    """Bytes saved by autograd in a real forward: each storage once, without parameters, inputs and
    tensors that do not grow with the batch."""
    own = {tensor.untyped_storage().data_ptr() for tensor in (*module.parameters(), x)}
    found: dict[int, int] = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own and tensor.dim() > 1:
            found[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda kept: kept):
        out = module.train()(x)
    assert out.requires_grad
    return sum(found.values())


@pytest.fixture(scope="module")
def residual() -> Model:
    return read_module(Residual(), ["3x16x16"])


def test_layers_stand_in_the_order_of_forward(residual: Model):
    assert [(layer.name, layer.kind) for layer in residual.layers] == [
        ("first", LayerKind.CONVOLUTION),
        ("norm", LayerKind.NORMALISATION),
        ("relu", LayerKind.ELEMENTWISE),
        ("second", LayerKind.CONVOLUTION),
        ("relu#2", LayerKind.ELEMENTWISE),
        ("Residual:add", LayerKind.ELEMENTWISE),
        ("Residual:max_pool2d_with_indices", LayerKind.POOLING),
        ("Residual:mean", LayerKind.POOLING),
        ("head", LayerKind.LINEAR),
    ]
    assert residual.input_shape == (3, 16, 16)
    assert residual.name == "Residual"


def test_windows_and_shapes(residual: Model):
    layers = by_name(residual)
    first, second, head = layers["first"], layers["second"], layers["head"]
    assert (first.input_shape, first.output_shape) == ((3, 16, 16), (8, 8, 8))
    assert (first.kernel, first.stride, first.padding) == ((3, 3), (2, 2), (1, 1))
    # A dilated kernel reaches as far as a large one.
    assert (second.kernel, second.stride, second.padding) == ((5, 5), (1, 1), (2, 2))
    assert second.groups == 2
    assert (head.input_shape, head.output_shape) == ((8,), (5,))
    pool, mean = layers["Residual:max_pool2d_with_indices"], layers["Residual:mean"]
    assert (pool.kernel, pool.stride, pool.output_shape) == ((2, 2), (2, 2), (8, 4, 4))
    assert (mean.kernel, mean.output_shape) == ((4, 4), (8,))


def test_parameters(residual: Model):
    assert residual.num_parameters == sum(p.numel() for p in Residual().parameters())
    assert by_name(residual)["norm"].num_parameters == 16


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: Residual(groups=1), "3x16x16"),
        (Functional, "3x9x9"),
        (lambda: nn.Linear(4, 4), "7x4"),
        (lambda: nn.ConvTranspose2d(3, 6, 4, stride=2), "3x9x9"),
        (lambda: nn.Conv3d(2, 4, 2), "2x4x5x6"),
    ],
)
def test_flops_are_what_torch_counts_with_data(make, shape: str):
    from torch.utils.flop_counter import FlopCounterMode

    module, batch = make(), 3
    x = torch.randn(batch, *parse_shape(shape)[0])
    counted = []
    with FlopCounterMode(display=False) as counter:
        out = module(x)
        counted.append(counter.get_total_flops())
        out.sum().backward()
        counted.append(counter.get_total_flops() - counted[0])
    model = read_module(module, [shape])
    assert sum(layer.forward_flops for layer in model.layers) * batch == counted[0] > 0
    assert sum(layer.backward_flops for layer in model.layers) * batch == counted[1] > 0


def test_backward_is_with_the_layer_that_made_it(residual: Model):
    for layer in residual.layers:
        # The inputs' own gradient is not wanted.
        times = 1 if layer.name == "first" else 2
        assert layer.backward_flops == times * layer.forward_flops, layer.name
    assert all(layer.backward_items for layer in residual.layers if ":add" not in layer.name)


@pytest.mark.parametrize(("make", "shape"), [(Residual, "3x16x16"), (Functional, "3x9x9")])
def test_saved_tensors_match_autograd(make, shape: str):
    module, batch = make(), 5
    x = torch.randn(batch, *parse_shape(shape)[0])
    model = read_module(module, [shape])
    assert sum(layer.saved_items for layer in model.layers) * 4 * batch == kept_bytes(module, x)


def test_saved_tensors_belong_to_the_first_user(residual: Model):
    layers = by_name(residual)
    assert layers["first"].saved_items == 0  # the inputs are the caller's
    assert layers["norm"].saved_items == 8 * 8 * 8  # what `first` gave
    assert layers["relu"].saved_items == 8 * 8 * 8  # its result, which `second` also wants
    assert layers["second"].saved_items == 0
    # Indices are of 8 bytes; what was pooled is the sum.
    pool = layers["Residual:max_pool2d_with_indices"]
    assert pool.saved_items == 8 * 8 * 8 + 2 * 8 * 4 * 4


def test_items_moved(residual: Model):
    norm = by_name(residual)["norm"]
    assert norm.forward_items == 2 * 8 * 8 * 8
    assert norm.backward_items == 3 * 8 * 8 * 8


def test_functions_become_layers():
    model = read_module(Functional(), ["3x9x9"])
    assert [(layer.name, layer.kind) for layer in model.layers] == [
        ("Functional:convolution", LayerKind.CONVOLUTION),
        ("Functional:convolution#2", LayerKind.CONVOLUTION),
    ]
    # Each with what follows it; the last scales what it made.
    assert [layer.num_parameters for layer in model.layers] == [8 * 3 * 9, 8 * 8 + 1]


def test_shared_parameters_count_once():
    model = read_module(Tied(), ["12:int64"])
    layers = by_name(model)
    assert model.num_parameters == 1600 + 272
    assert layers["unembed"].num_parameters == 0
    assert layers["body#2"].num_parameters == 0
    assert layers["body#2"].forward_flops == layers["body"].forward_flops == 2 * 12 * 16 * 16
    assert layers["body"].input_shape == (16, 12)


def test_the_module_is_left_as_it_is():
    module = Residual().eval()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    read_module(module, ["3x16x16"])
    assert not module.training
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert not any(parameter.grad is not None for parameter in module.parameters())
    assert not module.first._forward_hooks


def test_recomputed_layers_keep_nothing_and_compute_twice():
    from torch.utils.checkpoint import checkpoint

    class Recomputing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before = nn.Linear(8, 8)
            self.body = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))

        def forward(self, x):
            return checkpoint(self.body, self.before(x), use_reentrant=False)

    layers = by_name(read_module(Recomputing(), ["8"]))
    assert sum(layer.saved_items for name, layer in layers.items() if "body" in name) <= 8
    backward = sum(layer.backward_flops for layer in layers.values())
    forward = sum(layer.forward_flops for layer in layers.values())
    # The inputs' own gradient is not wanted; of the body the last product is not needed again.
    assert backward == 2 * forward - 2 * 8 * 8 + 2 * 8 * 32


def test_module_and_factory_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "my_net.py").write_text(
        "import torch\n"
        "from torch import nn\n"
        "def make():\n"
        "    # Not to be had on the meta device.\n"
        "    widths = [int(x.item()) for x in torch.linspace(4, 8, 2)]\n"
        "    return nn.Sequential(nn.Conv2d(3, widths[0], 3), nn.ReLU(), nn.Conv2d(4, 8, 3))\n"
        "def number():\n"
        "    return 7\n"
        "made = nn.Sequential(nn.Linear(4, 4))\n"
    )
    monkeypatch.chdir(tmp_path)
    model = load_model("my_net:make", input_shapes=["3x8x8"])
    assert [layer.filters for layer in model.layers] == [4, 4, 8]
    assert load_model("my_net:made", input_shapes=["4"]).num_parameters == 20
    for what in ("my_net:number", "my_net:nothing", "no_such_net:make", "my_net:"):
        with pytest.raises(InputError) as caught:
            load_model(what, input_shapes=["3x8x8"])
        assert caught.value.remedy


class WithTensorsOfItsOwn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.scale = torch.ones(4)

    def forward(self, x):
        weight = torch.ones(2, 2) @ torch.ones(2, 2)  # real ones
        steps = int(weight.mean((0, 1)))
        assert steps == 2
        return self.body(x) * self.scale + steps


class OnTheDevice(WithTensorsOfItsOwn):
    def forward(self, x):
        return self.body(x) + torch.arange(4)


@pytest.mark.parametrize("make", [WithTensorsOfItsOwn, OnTheDevice])
def test_tensors_that_are_not_parameters_are_supported(make):
    assert read_module(make(), ["4"]).num_parameters == 20


def test_a_module_may_be_called_often():
    class Unrolled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.Linear(4, 4)

        def forward(self, x):
            for _ in range(70):
                x = torch.tanh(self.cell(x))
            return x

    model = read_module(Unrolled(), ["4"])
    assert len(model.layers) == 140
    assert model.num_parameters == 20


def test_items_are_of_the_parameters_type():
    whole, half = (
        read_module(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 4)).to(kind), ["4"])
        for kind in (torch.float32, torch.bfloat16)
    )
    assert whole.layers == half.layers


class Deciding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 4)

    def forward(self, x):
        return self.body(x) if x.sum() > 0 else self.body(-x)


class Masking(Deciding):
    def forward(self, x):
        return self.body(x)[x > 0]


class OneByOne(Deciding):
    def forward(self, x):
        return torch.stack([self.body(sample) for sample in x])


class Untrained(Deciding):
    def forward(self, x):
        return self.body(x).detach()


class Broken(Deciding):
    def forward(self, x):
        raise KeyError(f"missing in {x.dim()} extents")


@pytest.mark.parametrize(
    ("make", "shape", "word"),
    [
        (Deciding, "4", "Deciding"),
        (Masking, "4", "Masking"),
        (OneByOne, "4", "each sample"),
        (Untrained, "4", "depends on trainable parameters"),
        (Broken, "4", "missing"),
        (Residual, "4x16x16", "first"),
        (Residual, "16", "first"),
    ],
)
def test_unreadable_modules_are_refused_with_the_reason(make, shape: str, word: str):
    with pytest.raises(InputError) as caught:
        read_module(make(), [shape])
    assert word in caught.value.cause
    assert caught.value.remedy
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("text", ["", "x", "3x", "0x3", "3x-1", "3:float7", "9" * 10, "3,4"])
def test_hostile_shapes_are_refused(text: str):
    with pytest.raises(InputError):
        parse_shape(text)


def test_unknown_models_are_refused():
    with pytest.raises(InputError, match="resnet51") as caught:
        load_model("resnet51")
    assert "resnet50" in caught.value.remedy
    with pytest.raises(InputError, match="inputs of"):
        load_model("my_net:make")


def test_the_command_line_reports_the_same_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "deciding_net.py").write_text(
        "import torch\n"
        "class Net(torch.nn.Linear):\n"
        "    def __init__(self):\n"
        "        super().__init__(4, 4)\n"
        "    def forward(self, x):\n"
        "        return super().forward(x) if x.sum() > 0 else x\n"
    )
    monkeypatch.chdir(tmp_path)
    what = ["--model", "deciding_net:Net", "--input-shape", "4", "--global-batch", "8"]
    assert main(["oracle", "--cluster", "cpu", *what]) == 3
    said = capsys.readouterr().err
    assert "deciding_net:Net" in said
    assert "remedy" in said
