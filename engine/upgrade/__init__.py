"""Recipes run again under other circumstances: on another toolchain, without a rule, on each of several targets."""
