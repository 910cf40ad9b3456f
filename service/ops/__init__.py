"""Operations: health, metrics, logs, connections, the watchdog, the machine's capacity, and the page
of all settings.

Nothing here changes a session's notes.
"""
