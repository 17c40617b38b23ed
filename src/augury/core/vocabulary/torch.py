"""Names of events of PyTorch, DDP and autograd, and constants of gloo."""

ACCUMULATES_GRADIENT = "torch::autograd::AccumulateGrad"
"""Event of autograd that adds a gradient to its parameter: the gradient exists when it ends."""
PREPARES_GRADIENT = "torch::distributed::reducer::mul_out"
"""Event of DDP that copies a gradient into its bucket."""
COPIES_GRADIENT = "torch.distributed.ddp.reducer::copy_bucket_to_grad"
"""Event of DDP that copies a gradient out of its bucket."""
OPTIMIZER_STEP = "Optimizer.step#"
"""Prefix of the event of an optimizer step."""
COPY_BUCKET = "copy bucket to gradients"
"""Name of the operation in a graph that copies a reduced bucket back."""

GLOO_THREADS = 2
"""Threads of gloo per process group. Collectives that they run at the same time share the link."""
