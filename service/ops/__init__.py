"""Operations: health, metrics, logs, the server process and its watchdog.

Nothing here changes a session's notes.
"""
