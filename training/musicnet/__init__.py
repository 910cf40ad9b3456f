"""The MusicNet archive: finding, resampling and cutting its recordings into windows.

Nothing is rendered here; the task is `training.music_task`.
"""
