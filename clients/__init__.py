"""Clients of the transcription service. They use only its wire protocol."""
