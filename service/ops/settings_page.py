"""The tables of SETTINGS.md from the code: ``python -m service.ops.settings_page`` writes them."""

import re
from pathlib import Path

from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings

from service.settings import ClusterSettings, Settings

PAGE = Path(__file__).parents[1] / "SETTINGS.md"
_TABLES: tuple[tuple[type[BaseSettings], re.Pattern[str]], ...] = (
    (Settings, re.compile(r"(\| `RSE_(?!CLUSTER_)\w+` \|.*\n)+")),
    (ClusterSettings, re.compile(r"(\| `RSE_CLUSTER_\w+` \|.*\n)+")),
)


def render(page: str) -> str:
    """The page with a row for every setting: variable, default, range, meaning."""
    for settings, rows in _TABLES:
        prefix = settings.model_config["env_prefix"]
        fields = settings.model_fields.items()
        table = "".join(f"{_row(prefix + name.upper(), field)}\n" for name, field in fields)
        page = rows.sub(table.replace("\\", r"\\"), page, count=1)
    return page


def _row(variable: str, field: FieldInfo) -> str:
    default = field.default
    if isinstance(default, SecretStr):
        default = default.get_secret_value()
    if isinstance(default, bool):
        default = int(default)
    if isinstance(default, tuple):
        default = ",".join(default)
    text = f"{default:g}" if isinstance(default, float) else str(default)
    bounds = [getattr(m, end) for end in ("ge", "le") for m in field.metadata if hasattr(m, end)]
    allowed = " to ".join(f"{bound:,}" for bound in bounds)
    words = " ".join((field.description or "").split())
    return f"| `{variable}` | {text} | {allowed} | {words} |"


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
