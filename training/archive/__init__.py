"""The command `training.archive.fetch`; the MusicNet archive is in `training.musicnet`."""
