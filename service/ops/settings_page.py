"""The table of SETTINGS.md from the code: ``python -m service.ops.settings_page`` writes it."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import SecretStr

from service.settings import Settings

PAGE = Path(__file__).parents[1] / "SETTINGS.md"
_ROWS = re.compile(r"(\| `RSE_\w+` \|.*\n)+")


def render(page: str) -> str:
    """The page with a row for every setting: variable, default, range, meaning."""
    rows = "".join(f"{_row(name)}\n" for name in Settings.model_fields)
    return _ROWS.sub(lambda _: rows, page, count=1)


def _row(name: str) -> str:
    field = Settings.model_fields[name]
    default = field.default
    if isinstance(default, SecretStr):
        default = default.get_secret_value()
    if isinstance(default, tuple):
        default = ",".join(default)
    text = f"{default:g}" if isinstance(default, float) else str(default)
    bounds = [getattr(m, end) for end in ("ge", "le") for m in field.metadata if hasattr(m, end)]
    allowed = " to ".join(f"{bound:,}" for bound in bounds)
    words = " ".join((field.description or "").split())
    return f"| `RSE_{name.upper()}` | {text} | {allowed} | {words} |"


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
