"""HTTP endpoints `POST /transcribe` and `POST /score`: request bodies, limits and responses.

`service.stream.recording` transcribes the recordings.
"""
