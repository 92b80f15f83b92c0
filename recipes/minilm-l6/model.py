"""The MiniLM-L6 sentence encoder from local weights."""

import os
from pathlib import Path

import torch


def load(weights: Path) -> torch.nn.Module:
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TQDM_DISABLE"] = "1"
    from transformers import AutoModel

    return AutoModel.from_pretrained(weights, local_files_only=True).eval()
