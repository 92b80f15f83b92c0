"""Two decoder blocks in the style of Llama: RMSNorm, rotary positions, grouped-query causal attention, SwiGLU.

Written out for this recipe; the weights are random, by the seed below.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class RMSNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, groups: int) -> None:
        super().__init__()
        self.size, self.heads, self.groups = width // heads, heads, groups
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, groups * self.size, bias=False)
        self.v = nn.Linear(width, groups * self.size, bias=False)
        self.o = nn.Linear(width, width, bias=False)
        self.register_buffer("rates", 10000.0 ** (-torch.arange(0, self.size, 2) / self.size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, seq, width = x.shape
        angles = torch.arange(seq)[:, None] * self.rates
        angles = torch.cat((angles, angles), -1)
        cos, sin = angles.cos(), angles.sin()
        q = self.q(x).reshape(batch, seq, self.heads, self.size).transpose(1, 2)
        k = self.k(x).reshape(batch, seq, self.groups, self.size).transpose(1, 2)
        v = self.v(x).reshape(batch, seq, self.groups, self.size).transpose(1, 2)
        q, k = q * cos + turned(q) * sin, k * cos + turned(k) * sin
        more = self.heads // self.groups
        k, v = k.repeat_interleave(more, 1), v.repeat_interleave(more, 1)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(mixed.transpose(1, 2).reshape(batch, seq, width))


def turned(x: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), -1)


class Block(nn.Module):
    def __init__(self, width: int = 64, heads: int = 4, groups: int = 2, inner: int = 128) -> None:
        super().__init__()
        self.before, self.attention = RMSNorm(width), Attention(width, heads, groups)
        self.between = RMSNorm(width)
        self.gate = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.before(x))
        y = self.between(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Blocks(nn.Module):
    """[batch, seq] of tokens to hidden states [batch, seq, 64]."""

    def __init__(self, words: int = 256, width: int = 64, count: int = 2) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(count)))
        self.norm = RMSNorm(width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.norm(self.blocks(self.words(tokens)))


def load() -> nn.Module:
    torch.manual_seed(22)
    return Blocks().eval()
