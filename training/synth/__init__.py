"""Training audio rendered on the fly from a bank of recorded notes and a corpus of scores."""
