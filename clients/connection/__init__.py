"""One connection to the service: the websocket and the session over it, with flow control.

Nothing here reconnects or keeps audio.
"""
