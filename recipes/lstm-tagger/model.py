"""Tagger of token sequences: an embedding, a bidirectional LSTM, a linear layer. Random weights by the seed below."""

from __future__ import annotations

import torch
from torch import nn


class Tagger(nn.Module):
    """[batch, seq] of tokens to scores [batch, seq, tags]."""

    def __init__(self, words: int = 200, width: int = 32, tags: int = 9) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, batch_first=True, bidirectional=True)
        self.tags = nn.Linear(2 * width, tags)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.tags(self.lstm(self.words(tokens))[0])


def load() -> nn.Module:
    torch.manual_seed(21)
    return Tagger().eval()
