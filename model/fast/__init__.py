"""Fast inference: folds batch norms, skips unused switch units, and reuses results of streams."""
