"""Head of a small 3-D detector: a volume of features is sampled where learned anchors lie, moved by what it sees.

Written out for this recipe; the weights are random, by the seed below.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class VoxelHead(nn.Module):
    """[batch, 4, 8, 12, 12] of voxels to scores [batch, anchors, classes] and boxes [batch, anchors, 7]."""

    def __init__(self, channels: int = 16, anchors: int = 24, classes: int = 3) -> None:
        super().__init__()
        self.classes = classes
        self.backbone = nn.Sequential(
            nn.Conv3d(4, channels, 3, padding=1), nn.BatchNorm3d(channels), nn.ReLU(),
            nn.Conv3d(channels, channels, 3, stride=2, padding=1), nn.BatchNorm3d(channels), nn.ReLU(),
        )  # fmt: skip
        self.anchors = nn.Parameter(torch.rand(1, anchors, 1, 1, 3) * 1.6 - 0.8)
        self.moves = nn.Linear(channels, anchors * 3)
        self.scores = nn.Linear(channels, classes)
        self.boxes = nn.Linear(channels, 7)

    def forward(self, voxels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = self.backbone(voxels)
        moves = self.moves(features.mean((2, 3, 4))).reshape(-1, self.anchors.shape[1], 1, 1, 3)
        at = self.anchors + 0.1 * torch.tanh(moves)
        seen = functional.grid_sample(features, at, padding_mode="border", align_corners=False)
        rows = seen[:, :, :, 0, 0].transpose(1, 2)
        return self.scores(rows), self.boxes(rows)


def load() -> nn.Module:
    torch.manual_seed(20)
    return VoxelHead().eval()
