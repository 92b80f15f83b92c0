"""Models that ``init`` is tried on; copied beside the recipe by the tests."""

import os

import torch
from torch import nn


class Conv(nn.Module):
    """Its flattened head fits one image size only, which no layer says outright."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 16, 3, padding=1)
        self.head = nn.Linear(16 * 14 * 14, 10)

    def forward(self, image):
        x = torch.relu(self.norm(self.first(image)))
        return self.head(torch.relu(self.second(x)).flatten(1))


def conv():
    return Conv().eval()


class Lstm(nn.Module):
    def __init__(self, batch_first=True):
        super().__init__()
        torch.manual_seed(0)
        self.rnn = nn.LSTM(12, 16, batch_first=batch_first)
        self.out = nn.Linear(16, 5)

    def forward(self, frames):
        return self.out(self.rnn(frames)[0])


def lstm():
    return Lstm().eval()


class Heads(nn.Module):
    """Returns a dict, one entry of it no tensor."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(50, 16)
        self.logits, self.value = nn.Linear(16, 4), nn.Linear(16, 1)

    def forward(self, words):
        mean = self.table(words).mean(1)
        return {"logits": self.logits(mean), "value": self.value(mean), "kind": "mean"}


def heads():
    return Heads().eval()


class Optional(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(8, 8)

    def forward(self, x, gate=None):
        y = self.linear(x)
        return y if gate is None else y * gate


def optional():
    return Optional().eval()


class Attend(nn.Module):
    """Three dynamic axes: the batch is shared, the two lengths are not."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.q, self.k = nn.Linear(8, 8), nn.Linear(6, 8)

    def forward(self, query, memory):
        """query: (batch, asked, 8)"""
        q, k = self.q(query), self.k(memory)
        weights = torch.softmax(q @ k.transpose(1, 2) / 3.0, -1)
        return weights @ k, weights


def attend():
    return Attend().eval()


class Large(nn.Module):
    """Leaves the range of FP16."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return self.linear(x * 1e6) * 1e-6


def large():
    return Large().eval()


class Pixels(nn.Module):
    """Takes images of any height and width."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.Conv2d(8, 4, 3, padding=1)

    def forward(self, image):
        x = self.second(torch.relu(self.first(image)))
        return nn.functional.interpolate(x, size=image.shape[-2:], mode="bilinear")


def pixels():
    return Pixels().eval()


class Branch(nn.Module):
    """Decides by a value, which torch.export refuses and a tracer takes for settled."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return self.one(x) if x.abs().sum() > 0 else self.two(x)


def branch():
    return Branch().eval()


class Text(nn.Module):
    """Looks up words below 50 and positions below 40; the mask drops where it is True."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.words, self.places = nn.Embedding(50, 16), nn.Embedding(40, 16)
        self.q, self.k = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, tokens, padding_mask):
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        weights = self.q(x) @ self.k(x).transpose(1, 2) / 4
        return torch.softmax(weights.masked_fill(padding_mask[:, None], float("-inf")), -1) @ x


def text():
    return Text().eval()


class Keyed(nn.Module):
    def forward(self, batch):
        return batch["x"]


def keyed():
    return Keyed()


class Never(nn.Module):
    def forward(self, x):
        raise ValueError(f"no good: {tuple(x.shape)}")


def never():
    return Never()


class Noisy(nn.Module):
    def forward(self, x):
        return x + torch.rand_like(x)


def noisy():
    return Noisy()


class Counted(nn.Module):
    def forward(self, x, times: int):
        return x * times


def counted():
    return Counted()


class Crashing(nn.Module):
    def forward(self, x):
        os.abort()


def crashing():
    return Crashing()


class Scaled(nn.Module):
    def forward(self, x):
        return x * (2.0 if torch.compiler.is_exporting() else 1.0)


class TwoFaced(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.scaled = Scaled()
        self.last = nn.Linear(8, 4)

    def forward(self, x):
        return self.last(self.scaled(x))


def two_faced():
    return TwoFaced()


class Said(nn.Module):
    def forward(self, x):
        return "a word"


def said():
    return Said()
