"""Test of the page behind a proxy, below a path."""

from pathlib import Path

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
  }}
}}
"""


def test_page_works_below_a_path(
    browser: Browser, server: RunningServer, recording: Path, tmp_path: Path
) -> None:
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = " ".join(f"{kind}_temp_path {kind};" for kind in kinds)

    def configuration(port: int) -> str:
        return CONFIGURATION.format(port=port, server=server.url, temporary=temporary)

    with nginx(configuration, tmp_path / "nginx", "/music/readyz") as proxy:
        context = browser.new_context(reduced_motion="reduce")
        tab = Tab(context.new_page(), server, f"{proxy}/music/")
        tab.upload(recording)
        expect(tab.page.locator("#note-count")).to_have_text("4 notes")
        tab.page.locator("summary", has_text="List").click()
        tab.listen()
        tab.wait_for_melody(NAMES)
        tab.stop()
        assert tab.console_errors == []
        context.close()
