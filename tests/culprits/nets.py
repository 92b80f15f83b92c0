"""Small nets with planted faults. This text is a customer's model file: it stands beside a recipe, with a ``load``."""

from __future__ import annotations

import math

import torch
from torch import nn


class Swell(nn.Module):
    """Past FP16's range and back: the product and the quotient."""

    def __init__(self, factor: float = 60000.0) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (torch.tanh(x) + 2.0) * self.factor / self.factor - 2.0


class Offset(nn.Module):
    """Digits lost beside a large number: the sum and the difference."""

    def __init__(self, offset: float) -> None:
        super().__init__()
        self.offset = offset

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + self.offset) - self.offset


class Exponential(nn.Module):
    """The softplus of a beginner: the exponential and the logarithm."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log(torch.exp(20.0 + 4.0 * x)) / 4.0 - 5.0


class Faint(nn.Module):
    """Below FP16's smallest numbers and back: a square and its root."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        small = torch.tanh(x) / 16000.0
        return torch.sqrt(small * small) * 16000.0


class Total(nn.Module):
    """A sum past FP16's range before it is made a mean: the sum and the quotient."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        spread = (x.abs() + 1.0).unsqueeze(-1) * torch.full((40,), 2000.0)
        return spread.sum(-1) / 60000.0 - 2.0


class Shifted(nn.Module):
    """A softmax over scores that all lie far from zero: the sum that moves them there and the softmax."""

    def __init__(self, shift: float) -> None:
        super().__init__()
        self.shift = shift

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(4.0 * x + self.shift, -1) * 4.0


class Wave(nn.Module):
    """The sine of a large angle: the sum that makes it and the sine."""

    def __init__(self, phase: float) -> None:
        super().__init__()
        self.phase = phase

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x + self.phase)


class Energy(nn.Module):
    """An RMS norm on a residual stream that has grown: the square and the mean."""

    def __init__(self, growth: float = 2000.0) -> None:
        super().__init__()
        self.growth = growth

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * self.growth
        return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)


class Loud(nn.Module):
    """A result past FP16's range where the graph's output begins: the product alone."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (torch.tanh(x) + 2.0) * 50000.0


class Raw(nn.Module):
    """An input in raw units, past FP16's range: the first node that reads it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log(x) - 12.0


class Outlier(nn.Module):
    """One feature three hundred times the others, which the bias takes out again: one scale for all is too coarse."""

    def __init__(self, width: int, size: float = 300.0) -> None:
        super().__init__()
        self.size, self.linear = size, nn.Linear(width + 1, width)
        with torch.no_grad():
            self.linear.weight[:, -1] = 0.1
            self.linear.bias -= size * 0.1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(torch.cat([x, torch.full_like(x[..., :1], self.size)], -1))


class Lopsided(nn.Module):
    """One column of the weight four hundred times the others, on a feature that is as much smaller."""

    def __init__(self, width: int, size: float = 400.0) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        with torch.no_grad():
            self.linear.weight[:, 0] *= size
        self.register_buffer("scale", torch.tensor([1 / size] + [1.0] * (width - 1)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x * self.scale)


class Hidden(nn.Module):
    """Half of the features two hundred times smaller than the others, and weighted up again."""

    def __init__(self, width: int, size: float = 200.0) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        half = [1.0] * (width // 2) + [1 / size] * (width - width // 2)
        self.register_buffer("scale", torch.tensor(half))
        with torch.no_grad():
            self.linear.weight /= self.scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x * self.scale)


class Spike(nn.Module):
    """A channel of three hundreds beside the image, which the bias of a convolution takes out again."""

    def __init__(self, width: int, size: float = 300.0) -> None:
        super().__init__()
        self.size, self.conv = size, nn.Conv2d(width + 1, width, 1)
        with torch.no_grad():
            self.conv.weight[:, -1] = 0.1
            self.conv.bias -= size * 0.1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(torch.cat([x, torch.full_like(x[:, :1], self.size)], 1))


FAULTS = {
    "swell": Swell, "offset": lambda: Offset(3000.0), "offset_bf16": lambda: Offset(60.0),
    "exponential": Exponential, "faint": Faint, "total": Total, "shifted": lambda: Shifted(3000.0),
    "shifted_bf16": lambda: Shifted(90.0), "wave": lambda: Wave(2001.0), "wave_bf16": lambda: Wave(61.0),
    "energy": Energy, "loud": Loud, "raw": Raw,
    "outlier": lambda: Outlier(24), "lopsided": lambda: Lopsided(24), "hidden": lambda: Hidden(24),
    "spike": lambda: Spike(6), "outlier_32": lambda: Outlier(32), "spike_16": lambda: Spike(16),
    "spike_32": lambda: Spike(32),
}  # fmt: skip


class Plain(nn.Module):
    """Blocks of one kind in a row, with faults behind some of them: ``faults`` maps the block's number to names."""

    def __init__(
        self, blocks: list[nn.Module], faults: dict[int, list[str]], head: nn.Module | None = None
    ) -> None:
        super().__init__()
        parts: list[nn.Module] = []
        for index in range(-1, len(blocks)):
            if index >= 0:
                parts.append(blocks[index])
            for name in faults.get(index, []):
                parts.append(FAULTS[name]())
        self.parts = nn.ModuleList(parts)
        self.head = head or nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in self.parts:
            x = part(x)
        return self.head(x)


class Dense(nn.Module):
    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.linear(x))


class Residual(nn.Module):
    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x + self.down(torch.nn.functional.gelu(self.up(x))))


class Convolution(nn.Module):
    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.conv(x))


class Attention(nn.Module):
    def __init__(self, width: int = 24, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.inner = heads, nn.Linear(width, 3 * width)
        self.out, self.norm = nn.Linear(width, width), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, seq, width = x.shape
        q, k, v = (t.reshape(batch, seq, self.heads, -1).transpose(1, 2) for t in self.inner(x).chunk(3, -1))
        scores = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(width / self.heads), -1)
        return self.norm(x + self.out((scores @ v).transpose(1, 2).reshape(batch, seq, width)))


BLOCKS = {"dense": Dense, "residual": Residual, "conv": Convolution, "attention": Attention}


def build(kind: str, count: int, faults: dict[int, list[str]]) -> nn.Module:
    torch.manual_seed(len(kind) + count)
    return Plain([BLOCKS[kind]() for _ in range(count)], faults).eval()


def planted(model: nn.Module, path: str, fault: str) -> nn.Module:
    """``model`` with a fault behind its module at ``path``, which then is the second part of a sequence there."""
    parent, _, last = path.rpartition(".")
    inner = model.get_submodule(path)
    model.get_submodule(parent).add_module(last, nn.Sequential(inner, FAULTS[fault]()))
    return model
