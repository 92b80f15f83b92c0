"""Checks of meaning, by subject; :mod:`engine.meaning` runs them all. They import nothing heavy."""
