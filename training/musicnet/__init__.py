"""The MusicNet archive: finding, fetching, resampling and cutting its recordings into windows."""
