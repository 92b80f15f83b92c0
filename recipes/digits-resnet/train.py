"""Train the digits net and write ``weights.safetensors``: python train.py (under a minute on two cores)."""

from pathlib import Path

import torch
from model import DigitsNet
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn


def main() -> None:
    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    labels = torch.tensor(digits.target)
    train, test = train_test_split(range(len(labels)), test_size=0.25, random_state=0, stratify=digits.target)
    net = DigitsNet()
    optimizer = torch.optim.AdamW(net.parameters(), 3e-3, weight_decay=1e-2)
    epochs, batch = 30, 64
    steps = epochs * (len(train) // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=steps)
    for _ in range(epochs):
        order = torch.tensor(train)[torch.randperm(len(train))]
        for rows in order.split(batch)[: len(train) // batch]:
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(images[rows]), labels[rows]).backward()
            optimizer.step()
            schedule.step()
    net.eval()
    with torch.no_grad():
        right = (net(images[test]).argmax(1) == labels[test]).float().mean().item()
    save_file(net.state_dict(), Path(__file__).with_name("weights.safetensors"))
    print(f"test accuracy {right:.4f} on {len(test)} images")


if __name__ == "__main__":
    main()
