"""The MusicNet archive: finding, resampling and cutting its recordings into windows."""
