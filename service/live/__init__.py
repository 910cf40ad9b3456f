"""The live websocket: receiving, pacing, sending, and the log of a session.

It moves bytes: workers compute (`service.workers`).
"""
