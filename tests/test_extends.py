"""``extends``: the merge rule, places in two files, and ``show --resolved``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import document, extends, intake, origins
from engine.errors import RecipeError
from engine.plain import to_plain
from engine.recipe import load
from tests.conftest import Cli

FOLDER = Path(__file__).parent / "recipes"
BASE = FOLDER / "base" / "recipe.yaml"


def merged(base: str, over: str) -> document.Document:
    return extends.merge(document.parse(base, "base.yaml"), document.parse(over, "over.yaml"))


def test_mappings_merge_key_by_key() -> None:
    found = merged("a: {b: 1, c: 2}\nd: 3\n", "a: {c: 4, e: 5}\n")
    assert found.data == {"a": {"b": 1, "c": 4, "e": 5}, "d": 3}


def test_lists_replace() -> None:
    assert merged("a: [1, 2, 3]\n", "a: [4]\n").data == {"a": [4]}


@pytest.mark.parametrize(
    ("base", "over"), [("{b: 1}", "2"), ("2", "{b: 1}"), ("[1]", "{b: 1}"), ("{b: 1}", "[1]")]
)
def test_other_kinds_replace(base: str, over: str) -> None:
    expected = document.parse(f"a: {over}\n").data
    assert merged(f"a: {base}\n", f"a: {over}\n").data == expected


def test_null_removes_and_what_it_removes_must_be_there() -> None:
    assert merged("a: {b: 1, c: 2}\n", "a: {b: null}\n").data == {"a": {"c": 2}}
    with pytest.raises(
        RecipeError, match=r"over.yaml:1:5: 'x' is to be removed, but base.yaml does not set it"
    ):
        merged("a: {b: 1}\n", "a: {x: null}\n")


def test_places_are_those_of_the_file_that_says_it() -> None:
    found = merged("a:\n  b: 1\n  c:\n    - x\n", "# a comment\na: {d: 2}\n")
    places = {path: str(found.place(path)) for path in (("a", "b"), ("a", "c", 0), ("a", "d"), ("a",))}
    assert places == {
        ("a", "b"): "base.yaml:2:6",
        ("a", "c", 0): "base.yaml:4:7",
        ("a", "d"): "over.yaml:2:8",
        ("a",): "over.yaml:2:4",
    }
    problem = found.problem(("a", "c", 0), "wrong")
    assert problem.source_line == "    - x"
    assert str(found.place(("nothing",))).startswith("over.yaml")


PLAIN = st.recursive(
    st.none() | st.integers() | st.text("abc", max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("abc", min_size=1, max_size=2), inner, max_size=3)
    ),
    max_leaves=12,
)
MAPPING = st.dictionaries(st.text("abc", min_size=1, max_size=2), PLAIN, max_size=4)


def rule(base: Any, over: Any) -> Any:
    """The merge rule in its shortest form; None at a key that is not there is left out."""
    if not (isinstance(base, dict) and isinstance(over, dict)):
        return over
    keys = list(base) + [key for key in over if key not in base]
    return {
        key: rule(base[key], over[key])
        if key in base and key in over
        else (over if key in over else base)[key]
        for key in keys
        if not (key in over and over[key] is None)
    }


@given(MAPPING, MAPPING)
def test_merging_follows_the_rule(base: dict[str, Any], over: dict[str, Any]) -> None:
    first, second = (document.parse(json.dumps(data), name) for data, name in ((base, "b"), (over, "o")))
    try:
        found = extends.merge(first, second)
    except RecipeError as error:
        refused = str(error)
        assert "is to be removed" in refused
        return
    assert found.data == rule(base, over)
    for path in extends._paths(found.data, ()):
        assert path in found.values
        assert found.place(path).file in ("b", "o")


@given(MAPPING)
def test_an_empty_variant_is_the_base(base: dict[str, Any]) -> None:
    assert extends.merge(document.parse(json.dumps(base)), document.parse("{}")).data == base


def test_the_variant_of_the_tests() -> None:
    loaded = load(FOLDER / "accept" / "extends.yaml")
    build, precision = loaded.recipe.build, loaded.recipe.precision
    assert build is not None
    assert precision is not None
    assert (build.target, build.workspace_mib, build.time_limit_s) == (None, 256, 600)
    assert [item.op for item in precision.overrides or ()] == ["Gelu"]
    assert loaded.recipe.model.python == "model.py:load"
    assert loaded.beside("model", "python") == BASE.parent
    assert loaded.beside("build", "workspace_mib") == FOLDER / "accept"


def test_a_chain_of_three(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "recipe.yaml").write_text(BASE.read_text())
    (tmp_path / "model.py").write_text("def load(): pass\n")
    (tmp_path / "a" / "recipe.yaml").write_text("extends: ..\nbuild: {time_limit_s: 5}\n")
    (tmp_path / "a" / "b" / "recipe.yaml").write_text("extends: ../recipe.yaml\nname: third\n")
    loaded, plan = intake.make_plan(tmp_path / "a" / "b")
    assert (plan.name, plan.build.time_limit_s, plan.build.target) == ("third", 5, "sm89")
    files = {
        origins.origin(loaded, plan, path)
        for path in (("name",), ("build", "time_limit_s"), ("build", "target"))
    }
    assert files == {
        f"{tmp_path}/a/b/recipe.yaml:2",
        f"{tmp_path}/a/recipe.yaml:2",
        f"{tmp_path}/recipe.yaml:13",
    }


def test_the_plan_is_that_of_the_same_recipe_written_out(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(BASE.read_text())
    (tmp_path / "model.py").write_text("def load(): pass\n")
    (tmp_path / "variant.yaml").write_text("extends: base.yaml\nseed: 3\nprecision: {base: bf16}\n")
    (tmp_path / "whole.yaml").write_text(BASE.read_text().replace("base: fp16", "base: bf16") + "seed: 3\n")
    first, second = (intake.make_plan(tmp_path / f"{name}.yaml")[1].digest for name in ("variant", "whole"))
    assert first == second


def leaves(value: Any) -> int:
    if isinstance(value, dict) and value:
        return sum(leaves(item) for item in value.values())
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        return sum(leaves(item) for item in value)
    return 1


@pytest.mark.parametrize("path", sorted((FOLDER / "accept").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_value_has_an_origin(path: Path) -> None:
    loaded, plan = intake.make_plan(path)
    text = origins.render(loaded, plan)
    lines = [line for line in text.splitlines() if not line.endswith((":", "-"))]
    shown = document.parse(text).data
    whole = origins._shortened(to_plain(plan))
    assert shown == json.loads(json.dumps(whole))
    assert len(lines) == leaves(whole)
    for line in lines:
        origin = line.rsplit("  # ", 1)[1]
        assert origin == "default" or (
            Path(origin.rsplit(":", 1)[0]).is_file() and int(origin.rsplit(":", 1)[1]) > 0
        )


def origins_of(path: Path) -> dict[str, str]:
    loaded, plan = intake.make_plan(path)
    lines = origins.render(loaded, plan).splitlines()
    return {line.split(":", 1)[0].strip(): line.rsplit("# ", 1)[1] for line in lines if "  # " in line}


def test_origins_are_right() -> None:
    full = FOLDER / "accept" / "full.yaml"
    text = full.read_text().splitlines()
    found = origins_of(full)

    def line(words: str) -> str:
        return f"{full}:{next(index for index, item in enumerate(text, 1) if words in item)}"

    assert found["opset"] == line("opset: 17")
    assert found["digest"] == line("sdpa-key-transpose")
    assert found["engine_mib"] == line("engine_mib")
    assert found["seed"] == line("seed: 7")
    small = origins_of(FOLDER / "accept" / "small.yaml")
    assert {small[key] for key in ("seed", "opset", "exporter", "simplify", "base", "rounds")} == {"default"}
    assert small["kind"] == "default"


def test_show_resolved_names_both_files(cli: Callable[..., Cli]) -> None:
    done = cli("show", FOLDER / "accept" / "extends.yaml", "--resolved")
    assert done.code == 0, done.text
    assert f"workspace_mib: 256  # {FOLDER}/accept/extends.yaml:4" in done.out
    assert f"time_limit_s: 600  # {FOLDER}/base/recipe.yaml:13" in done.out
    assert "target: null  # default" in done.out


def test_a_failure_in_a_run_points_into_the_base(toy: Callable[..., Path], tmp_path: Path) -> None:
    from engine import route
    from engine.errors import Failure

    toy()
    (tmp_path / "variant.yaml").write_text("extends: toy\nname: variant\n")
    loaded = load(tmp_path / "variant.yaml")
    message = route.explain(Failure("it broke", where="inputs.x.dtype"), loaded, tmp_path)
    assert message.startswith(f"{tmp_path}/toy/recipe.yaml:7:7: it broke")
