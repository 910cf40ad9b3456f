"""The transcription service, which converts live audio and recordings to notes."""
