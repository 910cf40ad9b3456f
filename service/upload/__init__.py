"""`POST /transcribe` and `POST /score`: forms in, answers out.

What a recording computes is in `service.stream.recording`; this package speaks HTTP.
"""
