"""Access control before any endpoint: hosts, origins, API keys, tokens and rejections."""
