"""A small residual conv net for scikit-learn's 8x8 digits."""

from pathlib import Path

import torch
from torch import Tensor, nn


class Block(nn.Module):
    """Two 3x3 convolutions with batch norm around a skip; (n, inner, h, w) to (n, outer, h / stride, w / stride)."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outer)
        self.conv2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outer)
        self.skip: nn.Module = nn.Identity()
        if stride != 1 or inner != outer:
            self.skip = nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + self.skip(x))


class DigitsNet(nn.Module):
    """Images (n, 1, 8, 8) in [0, 1] to logits (n, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.blocks = nn.Sequential(Block(16, 16, 1), Block(16, 32, 2), Block(32, 48, 2))
        self.head = nn.Linear(48, 10)

    def forward(self, image: Tensor) -> Tensor:
        features: Tensor = self.blocks(self.stem(image)).mean((2, 3))
        logits: Tensor = self.head(features)
        return logits


def load(weights: Path) -> nn.Module:
    from safetensors.torch import load_file

    net = DigitsNet()
    net.load_state_dict(load_file(weights))
    return net.eval()
