"""One performance over several sessions: every note begins and ends once."""
