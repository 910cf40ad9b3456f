"""Access control: keys, tokens, hosts and origins, rates, refusals.

It decides on requests before any endpoint sees them and knows nothing of audio or notes.
"""
