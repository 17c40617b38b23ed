"""Training by Lightning's ``Trainer``, which runs forward and backward in the optimizer's closure.

Without a launcher around it, Lightning starts the other ranks itself.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings

import lightning
import torch
import workload
from torch import Tensor, nn
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--model", choices=workload.MODELS, default="mlp")
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--ranks", type=int, default=2)
parser.add_argument("--nodes", type=int, default=1, help="hosts, of which each has some ranks")
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--clip", action="store_true")
parser.add_argument("--bf16", action="store_true")
parser.add_argument("--evaluate-every", type=int, default=0)
parser.add_argument("--save", action="store_true")
parser.add_argument("--workers", type=int, default=0)
options = parser.parse_args()


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = workload.MODELS[options.model]()
        self.last_loss = 0.0

    def training_step(self, batch: list[Tensor], _index: int) -> Tensor:
        inputs, targets = batch
        loss = nn.functional.cross_entropy(self.model(inputs), targets)
        self.last_loss = loss.detach()
        return loss

    def validation_step(self, batch: list[Tensor], _index: int) -> None:
        self.model(batch[0])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


torch.set_num_threads(1)
warnings.filterwarnings("ignore", module="lightning")
lightning.seed_everything(0, verbose=False)
module = Classifier()
with tempfile.TemporaryDirectory() as folder:
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=options.ranks // options.nodes,
        num_nodes=options.nodes,
        strategy="ddp" if options.ranks > 1 else "auto",
        max_steps=options.steps,
        accumulate_grad_batches=options.accumulate,
        gradient_clip_val=1.0 if options.clip else None,
        precision="bf16-mixed" if options.bf16 else "32-true",
        val_check_interval=options.evaluate_every * options.accumulate or None,
        limit_val_batches=4 if options.evaluate_every else 0,
        check_val_every_n_epoch=None if options.evaluate_every else 1,
        num_sanity_val_steps=0,
        enable_checkpointing=options.save,
        default_root_dir=folder,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    loader = DataLoader(workload.images(), batch_size=options.batch, num_workers=options.workers)
    trainer.fit(module, loader, DataLoader(workload.images(512), batch_size=options.batch))
workload.print_result(module.last_loss, module)
workload.end_process_group()
