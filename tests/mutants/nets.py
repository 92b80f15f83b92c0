"""The networks of the mutation test. The file is copied beside each recipe, so it imports nothing of its own project.

Weights are random unless said otherwise, biases and norms too: an addition of zero or a factor of one could be
dropped without a difference.
"""

import math
import os

import torch
from torch import nn
from torch.nn import functional


def settled(model: nn.Module) -> nn.Module:
    """Every bias, norm and running statistic away from the 0 or 1 that it starts with."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, value in [*model.named_parameters(), *model.named_buffers()]:
            if value.ndim != 1 or not value.is_floating_point() or "inv_freq" in name:
                continue
            drawn = torch.randn(value.shape, generator=generator) * 0.2
            value.copy_(1 + drawn.abs() if "var" in name else value + drawn)
    return model.eval()


class Bottleneck(nn.Module):
    def __init__(self, incoming: int, width: int, stride: int) -> None:
        super().__init__()
        out = width * 4
        self.conv1 = nn.Conv2d(incoming, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out)
        self.short = nn.Identity()
        if stride != 1 or incoming != out:
            self.short = nn.Sequential(nn.Conv2d(incoming, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        y = functional.relu(self.bn1(self.conv1(x)))
        y = functional.relu(self.bn2(self.conv2(y)))
        return functional.relu(self.bn3(self.conv3(y)) + self.short(x))


class ResNet50(nn.Module):
    """ResNet-50's own structure (3, 4, 6 and 3 bottlenecks) and its 1000 classes, with an eighth of its channels."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        blocks, incoming = [], width
        for stage, count in enumerate((3, 4, 6, 3)):
            for index in range(count):
                stride = 2 if index == 0 and stage else 1
                blocks.append(Bottleneck(incoming, width * 2**stage, stride))
                incoming = width * 2**stage * 4
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(incoming, 1000)

    def forward(self, image):
        return self.head(self.blocks(self.stem(image)).mean((2, 3)))


class Tagger(nn.Module):
    """Embedding, a bidirectional LSTM and a linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 24)
        self.lstm = nn.LSTM(24, 16, batch_first=True, bidirectional=True)
        self.head = nn.Linear(32, 9)

    def forward(self, tokens):
        return torch.log_softmax(self.head(self.lstm(self.table(tokens))[0]), -1)


class Recurrent(nn.Module):
    """Two layers of GRU over features, and a head on the last state."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(12)
        self.gru = nn.GRU(12, 16, num_layers=2, batch_first=True)
        self.head = nn.Linear(16, 5)

    def forward(self, series):
        states, last = self.gru(self.norm(series))
        return self.head(states), torch.tanh(last[-1])


class Twice(nn.Module):
    def __init__(self, incoming: int, out: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(incoming, out, 3, padding=1)
        self.norm = nn.GroupNorm(4, out)
        self.second = nn.Conv2d(out, out, 3, padding=1)

    def forward(self, x):
        return functional.silu(self.second(functional.silu(self.norm(self.first(x)))))


class UNet(nn.Module):
    """Two levels down by pooling, up by a transposed convolution and by nearest neighbours, skips concatenated."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.down1, self.down2 = Twice(1, width), Twice(width, width * 2)
        self.middle = Twice(width * 2, width * 2)
        self.up2 = nn.ConvTranspose2d(width * 2, width * 2, 2, 2)
        self.join2 = Twice(width * 4, width)
        self.join1 = Twice(width * 2, width)
        self.head = nn.Conv2d(width, 3, 1)

    def forward(self, image):
        one = self.down1(image)
        two = self.down2(functional.max_pool2d(one, 2))
        low = self.middle(functional.avg_pool2d(two, 2, ceil_mode=True))
        up = self.join2(torch.cat([self.up2(low)[:, :, : two.shape[2]], two], 1))
        up = functional.interpolate(up, scale_factor=2.0, mode="nearest")
        return torch.sigmoid(self.head(self.join1(torch.cat([up, one], 1))))


class Detector(nn.Module):
    """The head of a one-stage detector: two towers, boxes decoded on a grid, clipped, and their cells."""

    def __init__(self, width: int = 16, classes: int = 4) -> None:
        super().__init__()
        self.tower = nn.Sequential(
            nn.Conv2d(8, width, 3, padding=1), nn.BatchNorm2d(width), nn.LeakyReLU(0.1),
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(),
        )  # fmt: skip
        self.score = nn.Conv2d(width, classes, 1)
        self.box = nn.Conv2d(width, 4, 1)
        self.register_buffer("anchor", torch.tensor([12.0, 20.0]))

    def forward(self, features):
        found = self.tower(features)
        scores = torch.sigmoid(self.score(found)).flatten(2).transpose(1, 2)
        raw = self.box(found)
        height, width = raw.shape[-2], raw.shape[-1]
        rows = torch.arange(height, dtype=torch.float32, device=raw.device).to(raw.dtype)
        columns = torch.arange(width, dtype=torch.float32, device=raw.device).to(raw.dtype)
        centre_x = (raw[:, 0].sigmoid() * 2 - 0.5 + columns[None, None, :]) * 8
        centre_y = (raw[:, 1].sigmoid() * 2 - 0.5 + rows[None, :, None]) * 8
        size_x = raw[:, 2].clamp(max=1.0).exp() * self.anchor[0]
        size_y = raw[:, 3].clamp(max=1.0).exp() * self.anchor[1]
        box = torch.stack(
            [centre_x - size_x / 2, centre_y - size_y / 2, centre_x + size_x / 2, centre_y + size_y / 2], -1
        )
        box = box.flatten(1, 2).clamp(min=0.0)
        best = scores.max(-1).values
        return box, scores, torch.round(box / 8), best / (best.sum(-1, keepdim=True) + 1e-3)


class RmsNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


class Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.norm2 = RmsNorm(width), RmsNorm(width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.wi, self.wg = nn.Linear(width, 48, bias=False), nn.Linear(width, 48, bias=False)
        self.wo = nn.Linear(48, width, bias=False)

    def forward(self, x, bias):
        batch, length, width = x.shape
        y = self.norm(x)
        q, k, v = (
            one(y).reshape(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for one in (self.q, self.k, self.v)
        )
        mixed = torch.softmax(q @ k.transpose(2, 3) + bias, -1) @ v
        x = x + self.o(mixed.transpose(1, 2).reshape(batch, length, width))
        y = self.norm2(x)
        return x + self.wo(functional.gelu(self.wi(y), approximate="tanh") * self.wg(y))


class Encoder(nn.Module):
    """T5's encoder: relative position buckets by a logarithm, no scaling of scores, RMS norms, gated GELU."""

    def __init__(self, width: int = 32, heads: int = 4, buckets: int = 16) -> None:
        super().__init__()
        self.table = nn.Embedding(64, width)
        self.relative = nn.Embedding(buckets, heads)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(2))
        self.last = RmsNorm(width)
        self.half = buckets // 2

    def bucket(self, distance):
        exact = self.half // 2
        far = torch.log(distance.abs().clamp(min=1).to(torch.float32) / exact) / math.log(32 / exact)
        far = (exact + (far * (self.half - exact)).to(torch.int64)).clamp(max=self.half - 1)
        near = torch.where(distance.abs() < exact, distance.abs(), far)
        return near + (distance > 0).to(torch.int64) * self.half

    def forward(self, input_ids, attention_mask):
        x = self.table(input_ids)
        places = torch.arange(input_ids.shape[1])
        bias = self.relative(self.bucket(places[None, :] - places[:, None])).permute(2, 0, 1)[None]
        bias = bias + (1.0 - attention_mask[:, None, None, :].to(x.dtype)) * -1e4
        for layer in self.layers:
            x = layer(x, bias)
        return self.last(x)


def resnet50():
    return settled(ResNet50())


def lstm():
    return settled(Tagger())


def gru():
    return settled(Recurrent())


def unet():
    return settled(UNet())


def detector():
    return settled(Detector())


class First(nn.Module):
    """The first result of a model of the transformers library, whose further results are not ported."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask):
        return self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state


def llama():
    os.environ["HF_HUB_OFFLINE"] = "1"
    from transformers import LlamaConfig, LlamaModel

    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, use_cache=False,
        initializer_range=0.2,
    )  # fmt: skip
    return settled(First(LlamaModel(config)))


def vit():
    os.environ["HF_HUB_OFFLINE"] = "1"
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=16,
        patch_size=4, initializer_range=0.2, layer_norm_eps=1e-5,
    )  # fmt: skip
    return settled(ViTModel(config))


def t5():
    torch.manual_seed(3)
    return settled(Encoder())
