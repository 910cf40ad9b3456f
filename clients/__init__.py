"""Clients of the transcription service. They know its wire protocol and nothing else of it."""
