"""The MusicNet archive: finds and resamples its recordings, and cuts them into windows."""
