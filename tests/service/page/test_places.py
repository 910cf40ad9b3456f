"""Where the page is served: under a path, and behind proxies that are set up wrongly."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.service.nginx import nginx
from tests.service.page.browser import Tab
from tests.service.page.conftest import NAMES
from tests.service.servers import RunningServer

CONFIGURATION = """
pid nginx.pid;
events {{}}
http {{
  access_log off;
  {temporary}
  server {{
    listen 127.0.0.1:{port};
    proxy_http_version 1.1;
    location /music/ {{
      proxy_pass {server}/;
      proxy_set_header Host $http_host;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection upgrade;
    }}
    location /foreign/ {{  # the server sees another host than the browser
      proxy_pass {server}/;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection upgrade;
    }}
    location /plain/ {{  # no websockets
      proxy_pass {server}/;
      proxy_set_header Host $http_host;
    }}
  }}
}}
"""


@pytest.fixture(scope="module")
def proxy(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = " ".join(f"{kind}_temp_path {kind};" for kind in kinds)

    def configuration(port: int) -> str:
        return CONFIGURATION.format(port=port, server=server.url, temporary=temporary)

    with nginx(configuration, tmp_path_factory.mktemp("nginx"), "/music/readyz") as url:
        yield url


def test_the_page_works_under_a_path(
    browser: Browser, server: RunningServer, proxy: str, recording: Path
) -> None:
    context = browser.new_context()
    tab = Tab(context.new_page(), server, f"{proxy}/music/")
    tab.upload(recording)
    expect(tab.page.locator("#note-count")).to_have_text("4 notes")
    tab.page.locator("summary", has_text="List").click()
    tab.listen()
    tab.wait_for_melody(NAMES)
    tab.stop()
    assert tab.complaints == []
    context.close()


@pytest.mark.parametrize(
    ("place", "words", "tries_again"),
    [
        ("foreign", "this origin is not in RSE_ALLOWED_ORIGINS", False),
        ("plain", "a proxy between must pass it on; trying again", True),
    ],
)
def test_a_refusal_that_browsers_hide_is_named(
    browser: Browser, server: RunningServer, proxy: str, place: str, words: str, tries_again: bool
) -> None:
    context = browser.new_context()
    tab = Tab(context.new_page(), server, f"{proxy}/{place}/")
    tab.press("Listen")
    expect(tab.page.locator("#status.trouble")).to_contain_text(words)
    expect(tab.page.locator("#listen-label")).to_have_text("Stop" if tries_again else "Listen")
    context.close()
