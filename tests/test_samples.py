"""Sample values: what each kind makes, that it repeats, and that files and functions are held to their form."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import arrays, intake, samples
from engine.errors import StepError
from engine.plan import Plan, concrete
from engine.wording import values_text

ACCEPT = Path(__file__).parent / "recipes" / "accept"


def plan_of(name: str) -> Plan:
    return intake.make_plan(ACCEPT / f"{name}.yaml")[1]


Write = Callable[..., Plan]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """The plan of a recipe with one input ``x`` and, by ``more``, others."""

    def make(
        values: str, dtype: str = "float32", shape: str = "[batch, 8]", more: str = "", **files: Any
    ) -> Plan:
        for key, content in files.items():
            (tmp_path / key.replace("_py", ".py")).write_text(content)
        (tmp_path / "model.py").write_text("def load():\n    pass\n")
        (tmp_path / "recipe.yaml").write_text(
            "portwright: 1\nname: a\nmodel: {python: model.py:load}\n"
            "axes:\n  batch: {min: 1, opt: 4, max: 16}\ninputs:\n"
            f"  x: {{dtype: {dtype}, shape: {shape}, values: {values}}}\n{more}"
            "outputs: [y]\naccept:\n  onnx: {max_abs: 1.0e-5}\n  engine: {max_abs: 2.0e-2}\n"
        )
        return intake.make_plan(tmp_path)[1]

    return make


def x_of(plan: Plan, shape: str = "max") -> Any:
    return samples.make(plan, shape)["x"]


def kept(values: Any) -> Any:
    return (np.asarray(values) == 1).sum(-1)


def test_left_padding(write: Write) -> None:
    mask = x_of(write("{mask: {padding: left, low: 2, high: 6}}", "int64"))
    assert (np.diff(mask, axis=-1) >= 0).all()
    assert kept(mask).min() >= 2
    assert kept(mask).max() <= 6
    assert len(set(kept(mask).tolist())) > 1


def test_right_padding_keeps_first(write: Write) -> None:
    mask = x_of(write("{mask: {padding: right, low: 2}}", "int64"))
    assert (np.diff(mask, axis=-1) <= 0).all()
    assert set(np.unique(mask)) == {0, 1}


def test_mixed_padding_has_both_sides(write: Write) -> None:
    mask = x_of(write("{mask: {padding: mixed, low: 2, high: 6}}", "int64"))
    left = mask[:, -1] == 1
    assert left.any()
    assert not left.all()
    assert (np.abs(np.diff(mask, axis=-1)).sum(-1) == 1).all()


def test_no_padding(write: Write) -> None:
    assert x_of(write("{mask: {padding: none}}", "int64")).all()


def test_rows_are_masked_as_a_whole_only_when_asked(write: Write) -> None:
    assert kept(x_of(write("{mask: {padding: left}}", "int64"))).min() >= 1
    plan = write("{mask: {padding: none, empty_rows: 2}}", "int64")
    assert kept(x_of(plan)).tolist() == [8] * 14 + [0, 0]
    assert kept(x_of(plan, "min")).tolist() == [0]


def test_additive_mask(write: Write) -> None:
    mask = x_of(write("{mask: {padding: left, high: 4, keep: 0, drop: -10000}}"))
    assert set(np.unique(mask)) == {0.0, -10000.0}
    assert mask.dtype == np.float32


def test_lengths_say_the_same_as_a_right_padded_mask(write: Write) -> None:
    short, long = (
        write("{lengths: [2, 6]}", "int64"),
        write("{mask: {padding: right, low: 2, high: 6}}", "int64"),
    )
    assert np.array_equal(x_of(short), x_of(long))


def test_tokens_are_padding_where_the_mask_drops() -> None:
    plan = plan_of("values-tokens")
    for shape in plan.shapes:
        made = samples.make(plan, shape)
        mask, ids = made["attention_mask"] == 1, made["x"]
        assert (ids[~mask] == 0).all()
        assert (ids[mask] >= 1).all()
        assert np.array_equal(made["second_mask"], made["attention_mask"].astype(np.float32))
        positions = made["position_ids"]
        for row, there in zip(positions, mask, strict=True):
            assert row[there].tolist() == list(range(int(there.sum())))
        assert made["steps"].tolist() == list(range(ids.shape[1]))
    assert list(made) == list(plan.inputs)


def test_a_mask_spreads_over_the_axes_behind_its_own(write: Write) -> None:
    more = "  m: {dtype: bool, shape: [batch], values: {mask: {padding: right, low: 1, high: 9}}}\n"
    made = samples.make(write("{normal: [5, 1], masked_by: m, pad: -1}", more=more), "max")
    assert (made["x"][~made["m"]] == -1).all()
    assert (made["x"][made["m"]] != -1).all()


def test_dropping_is_what_the_mask_says_it_is(write: Write) -> None:
    more = "  m: {dtype: float32, shape: [batch, 8], values: {mask: {padding: left, high: 4, keep: 0, drop: -9}}}\n"
    made = samples.make(write("{integers: [1, 5], masked_by: m}", "int64", more=more), "max")
    assert np.array_equal(made["x"] == 0, made["m"] == -9)


def test_images() -> None:
    made = samples.make(plan_of("values-images"), "max")
    pixels = made["x"] * np.array([0.229, 0.224, 0.225]).reshape(3, 1, 1) + np.array(
        [0.485, 0.456, 0.406]
    ).reshape(3, 1, 1)
    pixels = pixels * 255
    assert np.abs(pixels - pixels.round()).max() < 1e-3
    assert pixels.min() >= -1e-3
    assert pixels.max() <= 255.001
    assert made["raw"].dtype == np.uint8
    assert made["raw"].max() > 200
    assert set(np.unique(made["half"] * 2)) <= set(range(-15, 17))


def test_files_give_their_leading_slice() -> None:
    plan = plan_of("values-files")
    with np.load(ACCEPT / "data.npz") as stored:
        x, ids = stored["x"], stored["ids"]
    sizes = {name: concrete(item.shape, plan.shapes["opt"]) for name, item in plan.inputs.items()}
    made = {
        name: samples._values(plan, name, plan.inputs[name], sizes[name], "opt", {})
        for name in ("x", "ids", "t")
    }
    assert np.array_equal(made["x"], x[:4, :8])
    assert np.array_equal(made["ids"], ids[:4])
    assert made["ids"].dtype == np.int64
    assert made["t"].ravel().tolist() == list(range(32))


def test_a_file_that_changed_since_the_check_is_refused(write: Write, tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.zeros((16, 8), np.float32))
    plan = write("{file: d.npz}")
    np.savez(tmp_path / "d.npz", x=np.zeros((2, 8), np.float32))
    with pytest.raises(StepError, match=r"the largest shape needs \[4, 8\]") as caught:
        samples.make(plan, "opt")
    assert caught.value.failure.where == "inputs.x.values.file"
    (tmp_path / "d.npz").unlink()
    with pytest.raises(StepError, match="No such file"):
        samples.make(plan, "opt")


def test_whole_numbers_of_a_file_must_fit(write: Write, tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.full((16, 8), 300, np.int64))
    with pytest.raises(StepError, match="do not fit into int8"):
        samples.make(write("{file: d.npz}", "int8"), "min")


def test_nothing_pickled_is_read(write: Write, tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.array([[{}] * 8] * 16, dtype=object))
    assert arrays.misfit(arrays.headers(tmp_path / "d.npz")["x"], "float32", (1, 8)).startswith(
        "its type is |O"
    )


GOOD = "import numpy as np\ndef make(name, shape, dtype, rng):\n    return rng.normal(size=shape).astype(dtype)\n"


def test_a_function_makes_values(write: Write) -> None:
    plan = write("{python: values.py:make}", values_py=GOOD)
    first, second = x_of(plan), x_of(plan)
    assert first.shape == (16, 8)
    assert np.array_equal(first, second)
    assert not np.array_equal(first[:1], x_of(plan, "min"))


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (
            GOOD.replace("size=shape", "size=(2,)"),
            r"returned float32 \[2\] for 'x', expected float32 \[16, 8\]",
        ),
        (GOOD.replace(".astype(dtype)", ""), "returned float64"),
        (GOOD.replace("return rng.normal(size=shape).astype(dtype)", "return 3"), "returned int"),
        (
            GOOD.replace("rng.normal(size=shape)", "np.random.default_rng().normal(size=shape)"),
            "different values",
        ),
        (GOOD.replace("rng.normal(size=shape)", "(1 / 0)"), "values.py:make raised ZeroDivisionError"),
    ],
)
def test_a_function_is_held_to_its_form(code: str, words: str, write: Write) -> None:
    plan = write("{python: values.py:make}", values_py=code)
    with pytest.raises(StepError, match=words) as caught:
        samples.make(plan, "max")
    assert caught.value.failure.where == "inputs.x.values.python"


def test_check_and_plan_do_not_run_the_function(write: Write) -> None:
    write("{python: values.py:make}", values_py="raise AssertionError\ndef make(): pass\n")


def test_the_digest_follows_the_function(write: Write) -> None:
    first = write("{python: values.py:make}", values_py=GOOD).digest
    assert first != write("{python: values.py:make}", values_py=GOOD + "\n").digest


def test_values_are_the_same_everywhere(write: Write) -> None:
    mask = x_of(write("{mask: {padding: mixed, low: 1, high: 6}}", "int64"), "opt")
    assert mask.sum(-1).tolist() == EXPECTED_KEPT
    image = x_of(write("{image: {layout: chw}}", "uint8", "[batch, 1, 2, 2]"), "min")
    assert image.ravel().tolist() == EXPECTED_PIXELS


EXPECTED_KEPT = [6, 3, 5, 2]
EXPECTED_PIXELS = [172, 255, 212, 174]


@given(st.integers(1, 9), st.integers(1, 9), st.sampled_from(["right", "left", "mixed"]), st.integers(0, 3))
def test_any_mask_is_one_run_of_kept_elements(low: int, more: int, padding: Any, empty: int) -> None:
    from engine.plan_inputs import PlannedInput, PlannedMask

    item = PlannedInput(
        "int64", (5, 7), "mask", (), mask=PlannedMask(padding, low, low + more, empty, 1.0, 0.0)
    )
    mask = samples._mask(np.random.default_rng(0), item, (5, 7))
    padded = np.pad(mask, ((0, 0), (1, 1)))
    assert (np.abs(np.diff(padded, axis=-1)).sum(-1) <= 2).all()
    full = mask.sum(-1)
    assert (full[5 - empty :] == 0).all()
    assert (full[: 5 - empty] >= min(low, 7)).all()


@pytest.mark.parametrize("name", ["values-tokens", "values-images", "values-files"])
def test_every_kind_is_put_into_words(name: str) -> None:
    plan = plan_of(name)
    texts = [values_text(item) for item in plan.inputs.values()]
    assert all(len(text) > 8 for text in texts)
    assert not any("None" in text for text in texts)


@pytest.mark.parametrize(
    "content",
    [b"", b"\x08\0\0\0\0\0\0\0{}", b"\xff" * 40, b"\x02\0\0\0\0\0\0\0[]", b"\x02\0\0\0\0\0\0\0{" + b"[" * 9,
     b'\x12\0\0\0\0\0\0\0{"x":{"dtype":[]}}'],
)  # fmt: skip
def test_broken_safetensors(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match="safetensors"):
        arrays.headers(tmp_path / "a.safetensors")


@given(st.binary(max_size=200))
def test_any_bytes_are_headers_or_refused(content: bytes) -> None:
    import tempfile

    for suffix in (".npz", ".safetensors"):
        with tempfile.NamedTemporaryFile(suffix=suffix) as file:
            file.write(content)
            file.flush()
            try:
                arrays.headers(Path(file.name))
            except ValueError:
                continue


def test_both_formats_are_read_as_their_own_libraries_do(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    data = {
        "a": np.arange(6, dtype=np.float16).reshape(2, 3),
        "b": np.array([True, False]),
        "c": np.array(3, np.int8),
    }
    save_file(data, tmp_path / "t.safetensors")
    np.savez(tmp_path / "t.npz", **data)  # type: ignore[arg-type]
    np.savez_compressed(tmp_path / "z.npz", **data)  # type: ignore[arg-type]
    for name in ("t.safetensors", "t.npz", "z.npz"):
        there = arrays.headers(tmp_path / name)
        for key, value in data.items():
            assert (there[key].dtype, there[key].shape) == (value.dtype.name, value.shape)
            assert np.array_equal(arrays.load(tmp_path / name, key), value)
