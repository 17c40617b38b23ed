"""Names of events that several stages know: of PyTorch, DDP, autograd and the recorder."""

MODULE_RANGE = "augury.module: "
"""Prefix of the ranges that Augury's recorder puts around forward passes of modules."""
FORWARD_RANGE = "augury.forward: "
"""Prefix of the recorder's ranges around the outermost forward passes, in light windows."""
EVALUATION_RANGE = "augury.evaluation: "
"""Prefix of both kinds of range around modules that do not train: evaluation between steps."""
CLOSURE_RANGE = "augury.closure"
"""The recorder's range around a closure, which runs forward and backward within the optimizer's
range."""
ACCUMULATES_GRADIENT = "torch::autograd::AccumulateGrad"
"""Event of autograd that adds a gradient to its parameter: the gradient exists when it ends."""
PREPARES_GRADIENT = "torch::distributed::reducer::mul_out"
"""Event of DDP that copies a gradient into its bucket."""
COPIES_GRADIENT = "torch.distributed.ddp.reducer::copy_bucket_to_grad"
"""Event of DDP that copies a gradient out of its bucket."""
OPTIMIZER_STEP = "Optimizer.step#"
"""Prefix of the event of an optimizer step."""
CLEARS_GRADIENTS = "Optimizer.zero_grad#"
"""Prefix of the event in which an optimizer clears gradients."""
ZEROES = frozenset(("aten::zero_", "aten::_foreach_zero_"))
"""Operations that set tensors to zero and keep their memory."""
GRADIENT_READS = frozenset(
    (
        "aten::_foreach_norm",
        "aten::linalg_vector_norm",
        "aten::norm",
        "aten::_foreach_clamp_min_",
        "aten::clamp_",
        "aten::_amp_foreach_non_finite_check_and_unscale_",
    )
)
"""Operations with which programs clip or unscale gradients between backward and the update."""
COPY_BUCKET = "copy bucket to gradients"
"""Name of the operation in a graph that copies a reduced bucket back."""

GLOO_THREADS = 2
"""Threads of gloo per process group. Collectives that they run at the same time share the link."""
