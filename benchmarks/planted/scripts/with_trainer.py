"""Trains a small BERT with the Trainer of Hugging Face; the collator numbers the words of every batch anew.

python with_trainer.py
"""

from __future__ import annotations

import argparse
import os
import random
from collections.abc import Sequence

import torch
from torch.utils.data import Dataset

os.environ["HF_HUB_OFFLINE"] = "1"

from transformers import BertConfig, BertForMaskedLM, Trainer, TrainingArguments

WORDS = 200
LENGTH = 80
LETTERS = "ab"


class Sentences(Dataset[str]):
    def __init__(self, count: int) -> None:
        chance = random.Random(1)
        self.texts = ["".join(chance.choices(LETTERS, k=LENGTH)) for _ in range(count)]

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> str:
        return self.texts[index]


def pieces(text: str) -> list[int]:
    """The most similar earlier place of each letter, by the letters before it, in plain Python."""
    numbers = []
    for place in range(LENGTH):
        best, longest = 0, 0
        for earlier in range(place):
            same = 0
            while same < earlier and text[earlier - same] == text[place - same]:
                same += 1
            if same > longest:
                best, longest = earlier, same
        numbers += [best]
    return numbers


def collated(batch: Sequence[str]) -> dict[str, torch.Tensor]:
    numbers = torch.tensor([pieces(text) for text in batch])
    return {"input_ids": numbers, "labels": numbers}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args()
    torch.set_num_threads(1)
    config = BertConfig(
        vocab_size=WORDS, hidden_size=64, num_hidden_layers=1, num_attention_heads=4, intermediate_size=256
    )
    arguments = TrainingArguments(
        output_dir="out",
        max_steps=options.steps,
        per_device_train_batch_size=8,
        use_cpu=True,
        save_strategy="no",
        logging_steps=1000,
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    Trainer(
        BertForMaskedLM(config), arguments, train_dataset=Sentences(options.steps * 8), data_collator=collated
    ).train()


if __name__ == "__main__":
    main()
