"""Operations: health, metrics, logs, traces, the server process and its watchdog.

Nothing here changes a session's notes.
"""
