"""Access control: keys, tokens, hosts, origins, refusals.

It decides on requests before any endpoint sees them and knows nothing of audio or notes.
"""
