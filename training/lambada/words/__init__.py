"""The vocabulary of a network and the vectors of its words."""
