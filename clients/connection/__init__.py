"""One connection to the service: the websocket, flow control, buffered audio."""
