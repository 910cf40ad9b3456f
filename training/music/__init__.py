"""The transcription task: notes and recordings as labels, losses, metrics.

Rendered training audio is in `synth`; the MusicNet archive is in `training.musicnet`.
"""
