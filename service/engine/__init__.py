"""Windows of samples to probabilities of notes: batching, threads and processes, CPUs and GPUs.

Nothing here knows of clients, sessions or how notes are read off the probabilities.
"""
