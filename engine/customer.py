"""Code that the recipe names: importing its file, and putting what it raises into one clear message."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.errors import StepError
from engine.schema import nearest

_HERE = str(Path(__file__).resolve().parent)


def function(file: Path, name: str, where: str) -> Callable[..., Any]:
    """Import ``file`` and return its function ``name``; StepError at recipe path ``where`` when it cannot."""
    module = import_file(file, where)
    found = getattr(module, name, None)
    if not callable(found):
        hint = nearest(name, [key for key in vars(module) if not key.startswith("_")])
        raise StepError(f"{file.name} defines no function '{name}'", fix=hint, where=where, usage=True)
    called: Callable[..., Any] = found
    return called


def import_file(file: Path, where: str) -> Any:
    """Run the file as a module; its folder comes first on the path, so that it finds its neighbours."""
    sys.path.insert(0, str(file.parent))
    name = f"_portwright_{file.stem}" if file.stem in sys.modules else file.stem
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit, KeyboardInterrupt) as error:  # process edge: it may raise anything
        raise theirs(f"importing {file.name} raised", error, where) from error
    return module


def call(symptom: str, where: str, called: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """Call the customer's code; whatever it raises becomes a StepError that begins with ``symptom``."""
    try:
        return called(*args, **named)
    except StepError:
        raise
    except (Exception, SystemExit, KeyboardInterrupt) as error:  # process edge: see import_file
        raise theirs(symptom, error, where) from error


def theirs(symptom: str, error: BaseException, where: str, klass: str = "tooling") -> StepError:
    """``error`` as a StepError: its first line, and the last frame that is neither ours nor a package's."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [
        frame
        for frame in frames
        if "site-packages" not in frame.filename and not frame.filename.startswith(_HERE)
    ]
    last = own[-1] if own else None
    spot = f"{Path(last.filename).name}:{last.lineno}: {last.line}" if last else ""
    lines = str(error).strip().splitlines()
    text = lines[0] if lines else ""
    return StepError(
        f"{symptom} {type(error).__name__}: {text}".rstrip(": "),
        klass=klass,
        cause=spot,
        where=where,
        evidence="".join(traceback.format_exception(error)),
    )
