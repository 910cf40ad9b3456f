"""The MusicNet archive: its files, windows of its recordings, and the paper's objective."""
