"""The training loop for any task: optimiser, state, log, several processes.

Nothing here knows what a task learns.
"""
