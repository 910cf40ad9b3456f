"""Who may use the service: decided before any endpoint, without knowing of audio or notes."""
