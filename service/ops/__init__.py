"""Operations: metrics, logs and admission control."""
