"""Clients of the transcription service. They communicate with it only by its wire protocol."""
