"""Ordinary data-parallel training in JAX: one process per host, gloo between them.

It does not use Augury or PyTorch. It runs in an environment of its own (``make env-jax``), so it
imports nothing else of this project.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

WIDTHS = (256, 1024, 1024, 10)
BATCH = 16

Parameters = list[tuple[Any, Any]]


def initial() -> Parameters:
    keys = jax.random.split(jax.random.key(0), len(WIDTHS))
    return [
        (jax.random.normal(key, (wide, narrow)) / math.sqrt(wide), jnp.zeros(narrow))
        for key, wide, narrow in zip(keys, WIDTHS, WIDTHS[1:], strict=False)
    ]


def loss_of(parameters: Parameters, inputs: Any, targets: Any) -> Any:
    for weight, bias in parameters[:-1]:
        inputs = jax.nn.relu(inputs @ weight + bias)
    weight, bias = parameters[-1]
    chosen = jax.nn.log_softmax(inputs @ weight + bias)
    return -jnp.take_along_axis(chosen, targets[:, None], axis=1).mean()


def step(parameters: Parameters, inputs: Any, targets: Any) -> tuple[Parameters, Any]:
    loss, gradients = jax.value_and_grad(loss_of)(parameters, inputs, targets)
    return jax.tree.map(lambda p, g: p - 0.01 * g, parameters, gradients), loss


def main() -> None:
    options = parse()
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        coordinator_address=options.coordinator,
        num_processes=options.processes,
        process_id=options.process,
        coordinator_bind_address=options.coordinator if options.process == 0 else None,
    )
    mesh = Mesh(np.array(jax.devices()), ("data",))
    everywhere = NamedSharding(mesh, PartitionSpec())
    split = NamedSharding(mesh, PartitionSpec("data"))
    # Created on each device from one seed: placing them there would compare all copies.
    parameters = jax.jit(initial, out_shardings=everywhere)()
    train = jax.jit(step, out_shardings=(everywhere, everywhere))
    generator = np.random.default_rng(1 + options.process)
    for _ in range(options.steps):
        inputs = generator.standard_normal((BATCH, WIDTHS[0]), dtype=np.float32)
        targets = generator.integers(WIDTHS[-1], size=BATCH, dtype=np.int32)
        parameters, loss = train(
            parameters,
            jax.make_array_from_process_local_data(split, inputs),
            jax.make_array_from_process_local_data(split, targets),
        )
        loss.block_until_ready()
    if options.process == 0 and options.report is not None:
        # Bytes summed over processes: a gradient for each parameter, and the loss.
        sizes = [int(leaf.nbytes) for leaf in jax.tree.leaves((parameters, loss))]
        told = {"loss": float(loss).hex(), "steps": options.steps, "summed_bytes": sizes}
        options.report.write_text(json.dumps(told))
    jax.distributed.shutdown()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--coordinator", required=True, metavar="ADDRESS:PORT")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--process", type=int, required=True, help="index of this process")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument(
        "--report", type=Path, help="file for the loss and the bytes summed per step"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
