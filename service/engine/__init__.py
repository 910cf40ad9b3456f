"""Windows of samples to probabilities of notes: batching, the model's thread, processors and GPUs.

Nothing here knows of clients, sessions or how notes are read off the probabilities.
"""
