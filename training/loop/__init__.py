"""The training loop for any task: optimiser, state, log, several processes."""
