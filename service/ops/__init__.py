"""Operations: health, metrics, logs, connections, and the watchdog.

Nothing here changes a session's notes.
"""
