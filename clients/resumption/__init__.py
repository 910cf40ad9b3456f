"""One performance over several sessions: every note begins and ends once, and audio is kept as long
as it may be needed again.

Nothing here opens connections or writes files.
"""
