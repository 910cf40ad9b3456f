"""Operations: health, metrics, logs, connections, watchdog, the machine's capacity, SETTINGS.md.

Nothing here changes a session's notes.
"""
