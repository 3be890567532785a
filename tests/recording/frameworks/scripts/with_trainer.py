"""Trains a small GPT-2 with the Trainer of Hugging Face. python with_trainer.py VARIANT"""

from __future__ import annotations

import os
import sys
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from own_clock import OwnClock, clock_of_script, say
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, PrinterCallback, Trainer, TrainerCallback, TrainingArguments

VARIANT = sys.argv[1]


class Words(Dataset[dict[str, torch.Tensor]]):
    def __init__(self, count: int) -> None:
        self.rows = torch.randint(0, 32, (count, 12))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


class Marks(TrainerCallback):
    def __init__(self, clock: OwnClock) -> None:
        self.clock = clock

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.clock.begin()
        self.clock.pause()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.clock.end()

    def on_log(self, _: Any, state: Any, *__: Any, logs: dict[str, float], **___: Any) -> None:
        say(state.global_step, {name: value for name, value in logs.items() if "loss" in name})


def trained(model: GPT2LMHeadModel, clock: OwnClock, *, until: int, resume: bool = False) -> int:
    """Train until a step; returns the last step."""
    arguments = TrainingArguments(
        output_dir="checkpoints",
        use_cpu=True,
        max_steps=until,
        per_device_train_batch_size=2,
        per_device_eval_batch_size=4,
        gradient_accumulation_steps=2,
        dataloader_num_workers=2 if VARIANT == "workers" else 0,
        eval_strategy="steps",
        eval_steps=9,
        logging_steps=1,
        save_strategy="steps",
        save_steps=7,
        save_total_limit=2,
        disable_tqdm=True,
        report_to=[],
        seed=1,
    )
    trainer = Trainer(
        model=model, args=arguments, train_dataset=Words(79), eval_dataset=Words(20), callbacks=[Marks(clock)]
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train(resume_from_checkpoint=resume)
    return int(trainer.state.global_step)


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    config = GPT2Config(vocab_size=32, n_positions=16, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    model, clock = GPT2LMHeadModel(config), clock_of_script()
    if VARIANT == "resuming":
        say(trained(model, clock, until=14))
    say(trained(model, clock, until=40, resume=VARIANT == "resuming"))
    say(sum(parameter.sum().item() for parameter in model.parameters()))


if __name__ == "__main__":
    main()
