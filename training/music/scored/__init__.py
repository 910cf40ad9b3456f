"""Real recordings as training data: with scores, with labels of their notes, or phrases."""
