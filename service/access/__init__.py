"""Who may use the service: keys, tokens, hosts and origins, rates, refusals.

Decides about requests before any endpoint sees them; knows nothing of audio or notes.
"""
