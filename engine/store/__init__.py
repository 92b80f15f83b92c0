"""The content-addressed store of step results: entries by key, files by digest. See docs/cache.md."""
