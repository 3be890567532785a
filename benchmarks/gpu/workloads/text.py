"""A small GPT that predicts the next token of random text."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

from benchmarks.gpu.workloads.workload import ENDLESS, Workload, imported

VOCABULARY = 32_000


class Tokens(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Random tokens and the same shifted by one."""

    def __init__(self, length: int, vocabulary: int, distinct: int = 256) -> None:
        self.tokens = torch.randint(vocabulary, (distinct, length + 1), generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return ENDLESS

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        row = self.tokens[index % len(self.tokens)]
        return row[:-1], row[1:]


class SmallGpt(nn.Module):
    """A decoder of plain PyTorch layers, where transformers is not installed."""

    def __init__(self, vocabulary: int, length: int, width: int, layers: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        layer = nn.TransformerEncoderLayer(
            width, width // 64, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Scores of each next token."""
        embedded = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        scores: torch.Tensor = self.head(self.layers(embedded, mask=self.mask, is_causal=True))
        return scores


def gpt(vocabulary: int, length: int, width: int, layers: int) -> tuple[str, nn.Module]:
    """A GPT-2 of transformers with random weights, else one of PyTorch's own layers."""
    if transformers := imported("transformers"):
        config: Any = transformers.GPT2Config(
            vocab_size=vocabulary,
            n_positions=length,
            n_embd=width,
            n_layer=layers,
            n_head=width // 64,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            use_cache=False,
            bos_token_id=0,
            eos_token_id=0,
        )
        return "transformers GPT-2", transformers.GPT2LMHeadModel(config)
    return "GPT of PyTorch layers", SmallGpt(vocabulary, length, width, layers)


def loss(model: nn.Module, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of the next token."""
    output = model(tokens)
    scores: torch.Tensor = getattr(output, "logits", output)
    return nn.functional.cross_entropy(scores.flatten(0, 1), targets.flatten())


def optimizer(parameters: list[nn.Parameter], *, fused: bool) -> torch.optim.Optimizer:
    """AdamW; fused on request."""
    return torch.optim.AdamW(parameters, lr=1e-4, fused=fused or None)


def make(*, reduced: bool, batch_size: int | None = None) -> Workload:
    """The training: 8 layers of width 768 over 512 tokens, reduced 2 of width 128 over 32."""
    vocabulary, length, width, layers = (512, 32, 128, 2) if reduced else (VOCABULARY, 512, 768, 8)
    name, model = gpt(vocabulary, length, width, layers)
    size = batch_size or (2 if reduced else 8)
    title = f"{name}, {layers} layers of width {width}, {length} tokens, batch {size}"
    return Workload(title, Tokens(length, vocabulary), size, model, loss, optimizer, has_images=False)
