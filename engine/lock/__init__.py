"""``recipe.lock.yaml``: what a run came to, in facts that repeat; its git diff is what a reviewer reads."""
