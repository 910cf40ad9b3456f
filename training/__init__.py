"""Training, evaluation and the data that both use."""
