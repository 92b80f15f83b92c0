"""A lock to change in tests, without a run behind it."""

from __future__ import annotations

from engine.lock.model import (
    Lock,
    LockedClaim,
    LockedEngine,
    LockedExport,
    LockedGraph,
    LockedModel,
    LockedOverride,
    LockedPrecision,
    LockedQuantised,
    LockedRecipe,
    LockedRule,
    LockedWaiver,
)

A, B = "a" * 64, "b" * 64
LOCK = Lock(
    claims={
        "accept.onnx.cosine": LockedClaim(">= 0.99", "pass", 0.99999977),
        "accept.engine (rehearsed).max_abs": LockedClaim("<= 0.01", "pass", 0.0012),
        "accept.engine (measured).max_abs": LockedClaim("<= 0.01", "not run", None, "no GPU"),
        "accept.fusion.attention": LockedClaim(">= 6", "pass", 6.0),
        "build": LockedClaim("an engine", "pass"),
    },
    lock=1,
    model=LockedModel({"model.py": A, "weights.pt": A}, "python", "model.py:load"),
    ops={"export": {"Add": 3, "MatMul": 40}, "rewrite": {"Add": 3, "MatMul": 36}},
    packages={"onnx": "1.23.2", "torch": "2.13.0"},
    portwright="0.1.0",
    recipe=LockedRecipe(A, 1, "toy"),
    rules=(LockedRule(6, 0, "sdpa-key-transpose"), LockedRule(1, 0, "mask-gather-by-arange")),
    verdict="accepted",
    waivers=(LockedWaiver("accept.engine.max_abs", "2027-01-31", "jane@example.com", "unused"),),
    engine=LockedEngine(
        50_226_790, {"attention": 6, "layers": 40}, {"float16": 30}, 90, "tensorrt_rtx 1.7.1.116", 70, "sm89"
    ),
    export=LockedExport("dynamo", 18),
    graph=LockedGraph(A, A),
    precision=LockedPrecision(
        "fp16",
        2,
        {"fp16": 20, "fp32": 2},
        A,
        {"fp32": ("Exp_1",)},
        (LockedOverride(("Softmax_1",), "op: Softmax", "fp32"),),
        LockedQuantised(("Conv_1 (Conv): no range",), "max", 64, {"x": 0.5}),
    ),
)
