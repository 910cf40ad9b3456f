"""The transcription task: notes and recordings as labels, losses, metrics.

Synthesised training audio is in `synth`; the MusicNet archive has a room of its own.
"""
