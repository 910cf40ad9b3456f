"""Clients of the transcription service. They depend on its wire protocol only."""
