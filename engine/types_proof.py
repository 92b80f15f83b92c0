"""Is the precision that was asked the precision that TensorRT was given? Read from the parsed network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_NETWORK_TYPES = {"FLOAT": "fp32", "HALF": "fp16", "BF16": "bf16"}


@dataclass(frozen=True)
class TypesProof:
    """``checked`` float tensors were found in the network; ``unseen`` were folded away or renamed there.

    ``wrong`` lists each tensor whose type is another one: (node, tensor, asked, found).
    """

    checked: int
    unseen: int
    by_type: Mapping[str, int]
    wrong: tuple[tuple[str, str, str, str], ...]

    @property
    def text(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.by_type.items()))
        hidden = f"; {self.unseen} are not visible there" if self.unseen else ""
        return f"{self.checked} float tensors in the parsed network have the asked type ({kinds}){hidden}"


def prove(asked: Sequence[Mapping[str, Any]], network: Mapping[str, Any]) -> TypesProof:
    """Compare the lowered graph's typed tensors (``types.json``) with the parsed network's layers."""
    types = {tensor["name"]: tensor["dtype"] for layer in network["layers"] for tensor in layer["outputs"] if tensor}
    checked, unseen, by_type, wrong = 0, 0, dict[str, int](), []
    for node in asked:
        for output in node["outputs"]:
            dtype = types.get(output["name"])
            if dtype is None:
                unseen += 1
                continue
            found = _NETWORK_TYPES.get(dtype, dtype.lower())
            if found == output["type"]:
                checked += 1
                by_type[found] = by_type.get(found, 0) + 1
            else:
                wrong.append((node["node"], output["name"], output["type"], found))
    return TypesProof(checked, unseen, by_type, tuple(wrong))
