"""The long fuzz of the recipe language: ``python -m tests.fuzz``; the counts are the last lines.

Mutations of valid recipes (tests/mutations.py), then bytes through the reader and the schema. Everything is
seeded: a failure prints what to repeat.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine import document, meaning, recipe, schema
from engine.errors import Problem, RecipeError
from tests import mutations, variants

MAX_SECONDS = 2.0  # of processor time: what else the machine does is not the reader's fault
MAX_MIB = 500
SIZES = (1000, 50_000, 300_000, 600_000, document.MAX_BYTES - 100, document.MAX_BYTES + 1)
PIECES = [b": ", b"- ", b"\n", b"  ", b"\t", b"{", b"}", b"[", b"]", b",", b"'", b'"', b"|", b">", b"#", b"&a ", b"*a",
          b"!!int ", b"!x ", b"%YAML 1.1\n", b"---\n", b"...\n", b"? ", b"<<: ", b"\xef\xbb\xbf", b"\x00", b"\xff",
          b"\xc2\x85", b"\xe2\x80\xa8", b"\\u", b'"\\x00"', b"null", b"1e999", b"0x", b"9" * 200, b"no", b"12:30",
          b"portwright: 1\n", b"axes", b"inputs", b"max_abs", b"\r", b"\r\n",
          b"\xed\xa0\x80", b"\xf0\x9f\x99\x82"]  # fmt: skip


def random_bytes(rng: random.Random, seeds: list[bytes]) -> bytes:
    return rng.randbytes(rng.randrange(200))


def soup(rng: random.Random, seeds: list[bytes]) -> bytes:
    """Tokens of the language in any order."""
    return b"".join(rng.choice(PIECES) for _ in range(rng.randrange(1, 60)))


def damaged(rng: random.Random, seeds: list[bytes]) -> bytes:
    """A valid recipe with a few bytes changed, put in or taken out."""
    raw = bytearray(rng.choice(seeds))
    for _ in range(rng.randrange(1, 6)):
        spot = rng.randrange(len(raw) + 1)
        match rng.randrange(5):
            case 0:
                raw[spot:spot] = rng.choice(PIECES)
            case 1:
                raw[spot : spot + 1] = rng.randbytes(1)
            case 2:
                del raw[spot : spot + rng.randrange(1, 20)]
            case 3:
                other = rng.choice(seeds)
                start = rng.randrange(len(other))
                raw[spot:spot] = other[start : start + rng.randrange(40)]
            case _:
                del raw[spot:]
    return bytes(raw)


def large(seeds: list[bytes], sizes: Sequence[int]) -> Iterator[tuple[str, bytes]]:
    """Label and bytes of large and nasty inputs, near the limits of size, depth, count and length."""
    shapes: dict[str, Callable[[int], bytes]] = {
        "lists in lists": lambda size: b"[" * size,
        "mappings in mappings": lambda size: b"{a: " * (size // 4),
        "dashes": lambda size: b"- " * (size // 2),
        "questions": lambda size: b"? " * (size // 2),
        "digits": lambda size: b"a: " + b"9" * size,
        "fraction": lambda size: b"a: ." + b"1" * size,
        "hexadecimal": lambda size: b"a: 0x" + b"f" * size,
        "one long text": lambda size: b"about: " + b"x " * (size // 2),
        "one long key": lambda size: b"'" + b"k" * size + b"': 1",
        "comment": lambda size: b"#" * size,
        "empty lines": lambda size: b"\n" * size,
        "tabs": lambda size: b"\t" * size,
        "block text": lambda size: b"a: |\n" + b"  x\n" * (size // 4),
        "escapes": lambda size: b'about: "' + b"\\n" * (size // 2) + b'"',
        "keys on one line": lambda size: b"{" + b",".join(b"k%d: 1" % i for i in range(size // 9)) + b"}",
        "keys": lambda size: b"".join(b"k%d: 1\n" % i for i in range(size // 9)),
        "axes": lambda size: b"axes:\n" + b"".join(b"  a%d: {min: x}\n" % i for i in range(size // 16)),
        "wrong outputs": lambda size: b"outputs: [" + b"1," * (size // 2) + b"]",
        "empty outputs": lambda size: b"outputs: [" + b"[]," * (size // 3) + b"]",
        "aliases": lambda size: b"".join(
            b"a%d: &a%d [*a%d, *a%d]\n" % (i, i, i - 1, i - 1) for i in range(1, size // 24)
        ),
        "overrides on one line": lambda size: (
            seeds[0] + b"precision: {overrides: [" + b"{type: fp32}," * (size // 13) + b"]}"
        ),
        "rewrites": lambda size: b"rewrites:\n" + b"  - {rule: celu, because: long}\n" * (size // 34),
        "a key again and again": lambda size: b"a: 1\n" * (size // 5),
        "faces": lambda size: b"\xf0\x9f\x99\x82" * (size // 4),
        "next lines": lambda size: b"\xc2\x85" * (size // 2),
    }
    for name, shape in shapes.items():
        for size in sizes:
            yield f"{name}, {size:,} bytes", shape(size)


@dataclass
class Seen:
    """What the byte fuzz has seen so far."""

    counts: Counter[str]
    slowest: float = 0.0
    slowest_input: str = ""


def feed(raw: bytes, label: str, seen: Seen) -> str:
    """Read and check one input; what is wrong with how that went, or nothing."""
    start, wrong = time.process_time(), ""
    try:
        found = schema.problems(document.decode(raw, "recipe.yaml"), "recipe")
        if found:
            seen.counts["refused by the schema"] += 1
        else:
            found = _meant(raw)
            seen.counts["refused for its meaning" if found else "valid"] += 1
        text = "".join(map(str, found))
    except RecipeError as error:
        seen.counts["refused by the reader"] += 1
        text = str(error)
    except Exception:  # noqa: BLE001 - whatever is raised here is what the fuzz looks for
        text, wrong = "", traceback.format_exc()
    seconds = time.process_time() - start
    if seconds > seen.slowest:
        seen.slowest, seen.slowest_input = seconds, label
    if seconds > MAX_SECONDS:
        wrong = f"took {seconds:.1f} s"
    if len(text) > 1_000_000:
        wrong = f"a message of {len(text):,} characters"
    if wrong:
        wrong = f"{label}: {wrong}\n{raw[:400]!r}"
    return wrong


def _meant(raw: bytes) -> list[Problem]:
    """What ``check`` says of a recipe of the right form, beside the models of the tests."""
    with tempfile.NamedTemporaryFile(
        dir=mutations.ROOT / "tests" / "recipes" / "accept", suffix=".fuzz"
    ) as file:
        file.write(raw)
        file.flush()
        try:
            return meaning.problems(recipe.load(Path(file.name)))
        except RecipeError as error:
            return list(error.problems)


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def fuzz_bytes(count: int, first: int = 0, sizes: Sequence[int] = SIZES) -> tuple[Seen, list[str]]:
    """The large inputs, then ``count`` small ones from seeds ``first``, ``first`` + 1, ..."""
    seeds = [mutations.write(mutations.tree(data)).encode() for data, _ in mutations.bases()]
    makers = (random_bytes, soup, damaged, damaged)
    seen, wrong = Seen(Counter()), []
    for label, raw in large(seeds, sizes):
        wrong.append(feed(raw, label, seen))
    for number in range(first, first + count):
        maker = makers[number % len(makers)]
        wrong.append(feed(maker(random.Random(number), seeds), f"{maker.__name__} {number}", seen))
    return seen, [fault for fault in wrong if fault]


def fuzz_mutations(count: int, first: int = 0) -> tuple[Counter[str], list[str]]:
    """``count`` random mutations, the kinds in turn."""
    bases, wrong, counts = mutations.bases(), [], Counter[str]()
    for number in range(first, first + count):
        rng = random.Random(number)
        data, folder = rng.choice(bases)
        kind = mutations.KINDS[number % len(mutations.KINDS)]
        counts[kind] += 1
        wrong.append(received(mutations.mutate(data, kind, rng), folder, f"mutation {number}"))
    return counts, [fault for fault in wrong if fault]


def fuzz_variants(count: int, first: int = 0) -> tuple[Counter[str], list[str]]:
    """``count`` random mutations of a variant and of its base, in turn."""
    both, wrong, counts = variants.data(), [], Counter[str]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        variants.prepare(folder)
        for number in range(first, first + count):
            rng = random.Random(number)
            which = variants.FILES[number % 2]
            kind = mutations.KINDS[number // 2 % len(mutations.KINDS)]
            mutation = variants.mutate(both, which, kind, rng)
            counts[f"of a {which}"] += 1
            try:
                fault = variants.fault(mutation, which, both, folder)
            except Exception:  # noqa: BLE001 - whatever is raised here is what the fuzz looks for
                fault = traceback.format_exc()
            if fault:
                wrong.append(f"{which} {number} ({kind}): {fault}\n{mutation.text}")
    return counts, wrong


def fuzz_retypes() -> tuple[int, list[str]]:
    """Every odd token in the place of every value of the recipe that uses the whole language."""
    folder = mutations.ROOT / "tests" / "recipes" / "accept"
    every = list(mutations.retypes(document.read(folder / "full.yaml").data))
    wrong = [received(mutation, folder, f"retype {number}") for number, mutation in enumerate(every)]
    return len(every), [fault for fault in wrong if fault]


def received(mutation: mutations.Mutation, folder: Path, label: str) -> str:
    """How the mutation was received: nothing, or what is wrong with it and the text to repeat it with."""
    try:
        fault = mutations.fault(mutation, folder)
    except Exception:  # noqa: BLE001 - whatever is raised here is what the fuzz looks for
        fault = traceback.format_exc()
    return f"{label} ({mutation.kind}): {fault}\n{mutation.text}" if fault else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutations", type=int, default=10_000)
    parser.add_argument("--bytes", type=int, default=150_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    options = parser.parse_args()
    start = time.perf_counter()
    kinds, wrong = fuzz_mutations(options.mutations, options.first)
    retyped, more = fuzz_retypes()
    kinds["every token at every value"] = retyped
    wrong += more
    varied, more = fuzz_variants(options.mutations // 3, options.first)
    kinds.update(varied)
    wrong += more
    seen, more = fuzz_bytes(options.bytes, options.first)
    wrong += more
    peak = peak_mib()
    if peak > MAX_MIB:
        wrong.append(f"peak memory {peak:.0f} MiB, limit {MAX_MIB}")
    for fault in wrong[:20]:
        print(fault, file=sys.stderr)
    print(
        f"{sum(kinds.values()):,} mutations: {', '.join(f'{kind} {n:,}' for kind, n in sorted(kinds.items()))}"
    )
    print(
        f"{sum(seen.counts.values()):,} byte inputs: {', '.join(f'{n:,} {what}' for what, n in seen.counts.items())}"
    )
    print(f"slowest input {seen.slowest:.2f} s ({seen.slowest_input}), peak memory {peak:.0f} MiB, "
          f"{time.perf_counter() - start:.0f} s in all")  # fmt: skip
    print(f"{len(wrong)} faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
