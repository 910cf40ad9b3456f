"""The lists of SETTINGS.md from the code: ``python -m service.ops.settings_page`` writes them."""

import re
import textwrap
from pathlib import Path

from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings

from service.settings import ClusterSettings, Settings

PAGE = Path(__file__).parents[1] / "SETTINGS.md"
_LISTS: tuple[tuple[type[BaseSettings], re.Pattern[str]], ...] = (
    (Settings, re.compile(r"(- `RSE_(?!CLUSTER_)\w+`(.|\n(?!\n))*\n)")),
    (ClusterSettings, re.compile(r"(- `RSE_CLUSTER_\w+`(.|\n(?!\n))*\n)")),
)


def render(page: str) -> str:
    """The page with an entry for every setting: variable, meaning, default, range."""
    for settings, entries in _LISTS:
        prefix = settings.model_config["env_prefix"]
        fields = settings.model_fields.items()
        found = "".join(f"{_entry(prefix + name.upper(), field)}\n" for name, field in fields)
        page = entries.sub(found.replace("\\", r"\\"), page, count=1)
    return page


def _entry(variable: str, field: FieldInfo) -> str:
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
    facts = ", ".join(filter(None, (f"default {text}" if text else "", allowed)))
    entry = f"- `{variable}`{f' ({facts})' if facts else ''}: {words}"
    return textwrap.fill(entry, 100, subsequent_indent="  ", break_on_hyphens=False)


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
