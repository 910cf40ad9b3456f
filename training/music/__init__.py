"""Music to train on: notes and recordings as labels, losses, metrics.

Rendered training audio is in `synth`, recordings with scores in `scored`; the MusicNet archive is
in `training.musicnet`, the task in `training.music_task`. Nothing here knows of the training loop.
"""
