"""``portwright diff``: what a change of a recipe means. ``compare`` finds the changes, ``words`` says them."""
