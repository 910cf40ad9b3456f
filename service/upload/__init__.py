"""`POST /transcribe`: the form, the transcription and its answer.

What a session computes lies in `session`; this package speaks HTTP.
"""
