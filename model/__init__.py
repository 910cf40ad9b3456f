"""The Residual Shuffle-Exchange transcription network, its configurations and its weights."""
