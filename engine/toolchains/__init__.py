"""Toolchains that Portwright makes and keeps: where they lie, how they are made, what each of them can do."""
