"""The paper's algorithmic tasks: binary addition, binary multiplication and sorting."""
