"""Notes, recordings, training targets, losses and metrics of music transcription."""
