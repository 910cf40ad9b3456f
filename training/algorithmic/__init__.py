"""The paper's algorithmic tasks: binary addition, binary multiplication and sorting.

Nothing here knows of audio or words.
"""
