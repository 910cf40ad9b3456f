"""A finished run to weights of the package: thresholds, the model card.

The last step of training; nothing else imports it.
"""
