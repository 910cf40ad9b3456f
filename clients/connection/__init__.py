"""One connection to the service: the websocket, flow control, retries, buffered audio.

Nothing here knows about notes.
"""
