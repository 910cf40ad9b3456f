"""Operations: health, metrics, logs and the machine's measured capacity.

Nothing here changes a session's notes.
"""
