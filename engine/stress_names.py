"""The kinds of hard inputs, by name. Light: ``check`` reads it."""

from __future__ import annotations

from collections.abc import Mapping

KINDS: Mapping[str, str] = {
    "little": "the recipe's own values at small sizes, another one for each axis",
    "corner": "the recipe's own values, one axis at its largest size and the others at their smallest",
    "zeros": "zero everywhere",
    "zero-rows": "the first half of the rows is zero",
    "constant-rows": "every row holds one number",
    "same-rows": "every row is the first one",
    "tiny": "the recipe's own values times 1e-6",
    "wide": "as far out as the values may be, so that curves saturate",
    "negative": "no number above zero",
    "positive": "no number below zero",
    "halves": "multiples of an eighth, so that roundings tie behind a factor, too",
    "ramp": "equal steps in any order, so that no two numbers are alike",
    "spike": "one number a row that is not zero",
    "large": "the recipe's own values times 1e4",
    "not-finite": "a NaN in the first row and an infinity in the last",
    "low": "the smallest whole number everywhere",
    "high": "the largest whole number everywhere",
    "ends": "smallest and largest whole number by turns",
    "repeated": "one whole number again and again",
    "ascending": "whole numbers one after the other",
    "compared": "numbers that the graph compares the input with, and those beside them",
    "mask-right": "rows of unequal length, padded on the right",
    "mask-left": "rows of unequal length, padded on the left",
    "mask-one": "one element a row kept",
    "mask-none": "nothing masked",
    "mask-rows": "the first row masked throughout",
    "fp64": "no values of its own: the graph and the model in FP64 on all of the others",
}
