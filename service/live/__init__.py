"""The live websocket: receives and paces audio, sends messages, and logs sessions.

The workers compute the messages (`service.workers`).
"""
