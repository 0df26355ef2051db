"""Every page of the built site in a real browser: nothing cut off, no error in its console.

The site is looked at where ``make docs`` has built it. Building it takes minutes and is a target
of its own; without it, or without Chromium, the test says so and skips.
"""

import functools
import http.server
import json
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

SITE = Path(__file__).parents[2] / "docs" / "_build" / "html"
CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--virtual-time-budget=60000", "--dump-dom"),
]
#: Opens each page in a frame of a given width and tells what does not fit and what went wrong.
LOOK = """<!doctype html><meta charset="utf-8"><pre id="told"></pre><script>
const pages = %s, widths = [1300, 400], told = [];
async function look(page, width, theme) {
  const frame = document.createElement("iframe");
  frame.style.cssText = `width:${width}px;height:900px;border:0`;
  document.body.append(frame);
  const said = [];
  await new Promise(done => {
    frame.onload = done;
    frame.src = page;
    const hook = setInterval(() => {
      const inner = frame.contentWindow;
      if (!inner || inner.location.href === "about:blank" || inner.hooked) return;
      inner.hooked = true;
      inner.addEventListener("error", e => said.push(e.message || `no ${e.target.src}`), true);
      inner.console.error = (...words) => said.push(words.join(" "));
    }, 1);
    setTimeout(() => { clearInterval(hook); done(); }, 15000);
  });
  const body = frame.contentDocument.body;
  body.dataset.theme = theme;
  if (frame.contentWindow.MathJax?.startup) await frame.contentWindow.MathJax.startup.promise;
  const wide = frame.contentDocument.documentElement.scrollWidth;
  if (wide > width) said.push(`${wide} pixels wide`);
  for (const image of frame.contentDocument.images)
    if (image.complete && !image.naturalWidth) said.push(`no picture ${image.src}`);
  if (said.length) told.push(`${page} at ${width}, ${theme}: ${said.join("; ")}`);
  frame.remove();
}
(async () => {
  for (const page of pages)
    for (const [width, theme] of [[1300, "light"], [400, "dark"]]) await look(page, width, theme);
  document.getElementById("told").textContent = JSON.stringify(told);
})();
</script>"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words):
        pass


@pytest.fixture(scope="module")
def address():
    handler = functools.partial(Quiet, directory=SITE)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def pages():
    """Pages that somebody wrote, and one of the reference, which are all alike."""
    found = sorted(p.relative_to(SITE).as_posix() for p in SITE.rglob("*.html"))
    made = [p for p in found if p.startswith(("api/generated/", "_modules/"))]
    return [p for p in found if p not in made] + made[:1]


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
@pytest.mark.skipif(not SITE.is_dir(), reason="the site is not built: make docs")
def test_pages_fit_and_do_not_complain(address, tmp_path):
    looker = SITE / "look.html"
    looker.write_text(LOOK % json.dumps([p for p in pages() if p != looker.name]))
    try:
        words = [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path}", f"{address}/{looker.name}"]
        dom = subprocess.run(words, capture_output=True, text=True, timeout=300).stdout
    finally:
        looker.unlink()
    told = dom.split('<pre id="told">')[1].split("</pre>")[0]
    assert told, "the browser did not come to the end"
    assert json.loads(told) == []
