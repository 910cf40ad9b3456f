"""Which of the offered media types a client wants (RFC 9110, section 12.5.1)."""

from __future__ import annotations

from collections.abc import Sequence


def choose(accept: str | None, offered: Sequence[str]) -> str | None:
    """The offered type that the `Accept` header prefers, the earlier one where it prefers none.

    None where the header excludes all; a missing or empty header accepts everything. Ranges that
    cannot be read count as absent.
    """
    if accept is None or not accept.strip():
        return offered[0]
    ranges = [_parse(entry) for entry in accept.split(",")]
    weights = {media_type: _weight(media_type, ranges) for media_type in offered}
    best = max(offered, key=lambda media_type: weights[media_type])  # the first of equals
    return best if weights[best] > 0 else None


def _parse(entry: str) -> tuple[str, float]:
    media_range, *parameters = (part.strip().lower() for part in entry.split(";"))
    weight = 1.0
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                weight = min(1.0, max(0.0, float(value)))
            except ValueError:
                weight = 0.0
    return media_range, weight


def _weight(media_type: str, ranges: Sequence[tuple[str, float]]) -> float:
    """The weight that the most specific matching range gives."""
    main = media_type.partition("/")[0]
    for specific in (media_type, f"{main}/*", "*/*"):
        weights = [weight for media_range, weight in ranges if media_range == specific]
        if weights:
            return max(weights)
    return 0.0
