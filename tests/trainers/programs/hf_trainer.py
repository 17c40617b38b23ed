"""Training by Hugging Face's ``Trainer``, of models made from their configurations."""

from __future__ import annotations

import argparse
import tempfile

import torch
import workload
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainingArguments,
)

parser = argparse.ArgumentParser()
parser.add_argument("--model", choices=("bert", "gpt2"), default="bert")
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--width", type=int, default=128)
parser.add_argument("--layers", type=int, default=2)
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--bf16", action="store_true")
parser.add_argument("--evaluate-every", type=int, default=0)
parser.add_argument("--save-every", type=int, default=0)
parser.add_argument("--all-used", action="store_true", help="find_unused_parameters=False")
options = parser.parse_args()

torch.set_num_threads(1)
torch.manual_seed(0)
if options.model == "bert":
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=workload.NUM_TOKENS,
            hidden_size=options.width,
            num_hidden_layers=options.layers,
            num_attention_heads=4,
            intermediate_size=4 * options.width,
            max_position_embeddings=workload.LENGTH,
            num_labels=workload.NUM_CLASSES,
        )
    )
else:
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=workload.NUM_TOKENS,
            n_embd=options.width,
            n_layer=options.layers,
            n_head=4,
            n_positions=workload.LENGTH,
        )
    )
with tempfile.TemporaryDirectory() as folder:
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=folder,
            max_steps=options.steps,
            per_device_train_batch_size=options.batch,
            gradient_accumulation_steps=options.accumulate,
            use_cpu=True,
            ddp_backend="gloo",
            ddp_find_unused_parameters=False if options.all_used else None,
            bf16=options.bf16,
            eval_strategy="steps" if options.evaluate_every else "no",
            eval_steps=options.evaluate_every or None,
            save_strategy="steps" if options.save_every else "no",
            save_steps=options.save_every or 500,
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            seed=0,
        ),
        train_dataset=workload.Sentences(has_classes=options.model == "bert"),
        eval_dataset=workload.Sentences(has_classes=options.model == "bert", size=32),
    )
    outcome = trainer.train()
workload.print_result(outcome.training_loss, model)
workload.end_process_group()
