"""Names for what is added to a graph."""

from __future__ import annotations

import onnx_ir as ir


class Names:
    """Hands out node and value names that no graph of the model uses."""

    def __init__(self, model: ir.Model) -> None:
        self.taken: set[str] = set()
        for graph in model.graphs():
            self.taken |= {value.name for value in graph.inputs if value.name} | set(graph.initializers)
            for node in graph:
                self.taken |= {value.name for value in node.outputs if value.name} | {node.name or ""}

    def fresh(self, wanted: str) -> str:
        name, count = wanted, 1
        while name in self.taken:
            count += 1
            name = f"{wanted}_{count}"
        self.taken.add(name)
        return name
