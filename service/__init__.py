"""The transcription service: live audio and recordings to notes."""
