"""Rules that are active together: what each says of itself, and what they do to one another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click
import pytest

from engine.commands import explain, rules
from engine.errors import RecipeError
from engine.rewriting.candidates import require_usable
from engine.rules import active, library
from tests.conftest import Cli
from tests.rules_tools import rule_file

RULE = """\
rule: {name}
class: op
why: for a test
match: '(x) => (y) {{ {match} }}'
{replace}
proof:
  inputs: {{x: {{dtype: {dtype}, shape: [2, 3], values: normal}}}}
  equal: {{max_abs: 0}}
needed_by: {{tensorrt-rtx: never}}
"""


def written(folder: Path, name: str, match: str, replace: str, dtype: str = "float32") -> tuple[Path, str]:
    said = replace if replace.startswith(("apply", "definition")) else f"replace: '(x) => (y) {{ {replace} }}'"
    text = RULE.format(name=name, match=match, replace=said, dtype=dtype)
    return rule_file(folder, text, name), f"{name}.yaml"


def refused(*files: tuple[Path, str], run_python: bool = True) -> str:
    with pytest.raises(RecipeError) as caught:
        active.load(files, run_python)
    return str(caught.value)


def test_the_shipped_rules_do_not_undo_each_other() -> None:
    files = [(library.path_of(name), name) for name in library.names()]
    assert [rule.name for rule in active.load(files)] == list(library.names())


def test_a_circle_of_three_names_them_all(tmp_path: Path) -> None:
    one = written(tmp_path, "one", "y = Abs (x)", "y = Neg (x)")
    two = written(tmp_path, "two", "y = Neg (x)", "y = Exp (x)")
    three = written(tmp_path, "three", "y = Exp (x)", "y = Abs (x)")
    assert refused(one, two, three) == (
        "one.yaml:5:1: rules one, two and three undo each other: two (two.yaml:5:1) and then three (three.yaml:5:1)"
        " turns what one puts there back into what it matches\n"
        "    5 | replace: '(x) => (y) { y = Neg (x) }'\n"
        "      | ^^^^^^^\n"
        "        name one of them only, or add a condition (where) that the other's result does not meet"
    )
    assert [rule.name for rule in active.load([one, two])] == ["one", "two"], "a way that does not lead back"


def test_constants_and_attributes_count_when_a_graph_is_the_same_again(tmp_path: Path) -> None:
    there = written(tmp_path, "there", "t = Constant <value_float = 2.0> () y = Mul (x, t)", "y = Add (x, x)")
    back = written(tmp_path, "back", "y = Add (x, x)", "t = Constant <value_float = 2.0> () y = Mul (t, x)")
    other = written(tmp_path, "other", "y = Add (x, x)", "t = Constant <value_float = 3.0> () y = Mul (x, t)")
    assert "rules there and back undo each other" in refused(there, back)
    active.load([there, other])
    leaky = written(tmp_path, "leaky", "y = LeakyRelu <alpha = 0.5> (x)", "y = Abs (x)")
    for name, alpha in (("same", "0.5"), ("unlike", "0.25")):
        turned = written(tmp_path, name, "y = Abs (x)", f"y = LeakyRelu <alpha = {alpha}> (x)")
        if name == "same":
            assert "rules leaky and same undo each other" in refused(leaky, turned)
        else:
            active.load([leaky, turned])


def test_python_is_run_where_it_may_be(tmp_path: Path) -> None:
    (tmp_path / "to-neg.py").write_text("def apply(graph, match):\n    graph.nodes[0].op = 'Neg'\n")
    python = written(tmp_path, "to-neg", "y = Abs (x)", "apply: to-neg.py")
    back = written(tmp_path, "to-abs", "y = Neg (x)", "y = Abs (x)")
    assert "rules to-neg and to-abs undo each other" in refused(python, back)
    assert len(active.load([python, back], run_python=False)) == 2


def test_all_problems_of_all_files_at_once(tmp_path: Path) -> None:
    one = written(tmp_path, "one", "y = Abs (x)", "y = Cast <to = 6> (x)")
    two = written(tmp_path, "two", "y = Abs (z)", "y = Abs (x)")
    said = refused(one, two)
    assert "one.yaml:5:24: replace: y is int32; match has float32 (x float32)" in said
    assert "two.yaml:4:31: match: z is used but nothing above makes it" in said


def test_a_type_that_the_proof_reaches_last_is_seen(tmp_path: Path) -> None:
    where = written(tmp_path, "one", "y = Abs (x)", "y = Cast <to = 1> (x)", dtype="[float32, float16]")
    assert "replace: y is float32; match has float16 (x float16)" in refused(where)


def test_a_proof_that_makes_no_graph_is_refused_at_its_line(tmp_path: Path) -> None:
    path, shown = written(tmp_path, "one", "y = Cast <to: int = @to> (x)", "y = Cast <to: int = @to> (x)")
    path.write_text(path.read_text().replace("proof:\n", "proof:\n  attributes: {to: [1, Add]}\n"))
    assert "one.yaml:6:1: proof: what it names makes no graph: invalid literal for int()" in refused((path, shown))


@pytest.fixture
def bad_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    written(tmp_path, "good", "y = Abs (x)", "a = Neg (x) y = Max (a, x)")
    written(tmp_path, "bad", "y = Abs (x)", "y = Nge (x)")
    monkeypatch.setattr(library, "data_dir", lambda name: tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("command", "given"),
    [(rules.command, {"spec": None, "as_json": False}), (explain.command, {"rule": "bad", "as_json": False})],
)
def test_commands_refuse_a_rule_at_its_line(
    bad_library: Path, command: click.Command, given: dict[str, object]
) -> None:
    assert command.callback is not None
    with pytest.raises(RecipeError) as caught:
        command.callback(**given)
    assert str(caught.value) == (
        f"{bad_library / 'bad.yaml'}:5:28: replace: unknown operator Nge\n"
        "    5 | replace: '(x) => (y) { y = Nge (x) }'\n"
        "      |                            ^^^\n"
        "        did you mean 'Neg'?"
    )


def test_rules_that_rewrite_is_asked_for_are_looked_at_first(bad_library: Path) -> None:
    require_usable(["good"])
    with pytest.raises(RecipeError, match="replace: unknown operator Nge"):
        require_usable(["good", "bad"])
    written(bad_library, "back", "b = Neg (x) y = Max (x, b)", "y = Abs (x)")
    with pytest.raises(RecipeError, match="rules good and back undo each other"):
        require_usable(["good", "back"])


def test_a_file_of_ones_own_can_be_explained(cli: Callable[..., Cli], tmp_path: Path) -> None:
    written(tmp_path, "own", "y = Abs (x)", "a = Neg (x) y = Max (a, x)")
    done = cli("explain", tmp_path / "own.yaml")
    assert done.code == 0, done.text
    assert done.out.startswith("own\n\nWhat breaks\n  for a test\n")
