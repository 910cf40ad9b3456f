"""Operations: health, metrics, logs and the machine's measured capacity."""
