"""Files and windows of the MusicNet archive, and the paper's training objective."""
