"""Other transcribers, run by the interpreter of an environment that has them."""
