"""The training loop for any task: optimiser, state, log, several processes.

Nothing here depends on the task.
"""
