"""The live websocket: receiving, pacing, sending, and the log of a session.

What a session computes lies in `session`; this package moves messages.
"""
