"""The training loop of all tasks: optimiser, files of a run, losses of symbol tasks."""
