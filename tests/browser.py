"""Opens a file in headless Chromium and says what a person and the network would have noticed.

The browser is driven through the DevTools protocol over a pair of pipes (`--remote-debugging-pipe`), which needs no
package and opens no port. Each browser has an empty profile of its own and is ended by its process id. Tests that use it
call `require`, which skips where no Chromium is on the PATH.
"""

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
# Long, because a browser on a busy machine with two cores may take this long to answer; it usually takes milliseconds.
PATIENCE_SECONDS = 120.0

# Per picture: the marks (paths, texts) inside the mark groups of its SVG, axes and legends not counted.
_FACTS = """(() => {
  const width = document.documentElement;
  const marks = (box) => [...box.querySelectorAll('g[class*="mark-"]')]
    .filter((g) => !/role-(axis|legend|title|frame|scope)/.test(g.getAttribute('class')))
    .filter((g) => !g.closest('.role-axis, .role-legend, .role-title'))
    .reduce((n, g) => n + g.querySelectorAll(':scope > path, :scope > text, :scope > line, :scope > rect').length, 0);
  return {
    charts: Object.fromEntries([...document.querySelectorAll('.chart')].map((box) => [box.id, marks(box)])),
    svg_count: document.querySelectorAll('.chart > svg').length,
    scroll_width: width.scrollWidth,
    client_width: width.clientWidth,
    text: document.body.innerText,
  };
})()"""


@dataclass(frozen=True)
class PageFacts:
    """What was seen: errors of the console, addresses asked for, marks per picture, widths in CSS pixels, the text."""

    console_errors: tuple[str, ...]
    requests: tuple[str, ...]
    dialogs: tuple[str, ...]
    charts: dict[str, int]
    svg_count: int
    scroll_width: int
    client_width: int
    text: str


def require() -> str:
    """The browser's path; skips the test where there is none."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no Chromium on the PATH (Debian: apt-get install chromium)")
    return found


class Browser:
    """One headless browser; use it in a `with` statement."""

    def __init__(self) -> None:
        self._profile = tempfile.TemporaryDirectory(prefix="unembed-chromium-", ignore_cleanup_errors=True)
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()

        def inherit() -> None:
            # Chromium reads commands from descriptor 3 and answers on 4. Both pipes may lie on 3 or 4 already.
            high = os.dup(to_browser), os.dup(from_browser)
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        command = [require(), *FLAGS, f"--user-data-dir={self._profile.name}", "about:blank"]
        self._process = subprocess.Popen(
            command, preexec_fn=inherit, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(to_browser)
        os.close(from_browser)
        self._numbers = itertools.count(1)
        self._buffer = b""
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> "Browser":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.call("Browser.close")
        except (OSError, TimeoutError):
            self._process.kill()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._out)
        os.close(self._in)
        self._profile.cleanup()

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Sends one command and gives its result; events that come meanwhile are kept."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        answer = self._until(lambda m: m.get("id") == number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def wait_for(self, event: str, session: str) -> None:
        """Reads until an event of a page has come, if it has not already."""
        if not any(e["method"] == event and e.get("sessionId") == session for e in self.events):
            self._until(lambda m: m.get("method") == event and m.get("sessionId") == session)

    def open(self, path: Path, *, width: int = 1400, dark: bool = False, height: int = 900) -> "Page":
        """Opens a file at a width and in a colour scheme, and waits until it has been drawn."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, target)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.set_width(width, height)
        page.set_scheme(dark)
        page.call("Page.navigate", url=path.resolve().as_uri())
        self.wait_for("Page.loadEventFired", session)
        page.settle()
        return page

    def _until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        ends = time.monotonic() + PATIENCE_SECONDS
        while True:
            while b"\0" not in self._buffer:
                left = ends - time.monotonic()
                if left <= 0 or not select.select([self._in], [], [], left)[0]:
                    raise TimeoutError(f"the browser was silent for {PATIENCE_SECONDS:.0f} s")
                chunk = os.read(self._in, 1 << 20)
                if not chunk:
                    raise OSError("the browser has ended")
                self._buffer += chunk
            raw, _, self._buffer = self._buffer.partition(b"\0")
            message = json.loads(raw)
            if "method" in message:
                self.events.append(message)
            if message.get("method") == "Page.javascriptDialogOpening":
                number = next(self._numbers)
                close = {"id": number, "sessionId": message["sessionId"], "method": "Page.handleJavaScriptDialog"}
                os.write(self._out, json.dumps({**close, "params": {"accept": False}}).encode() + b"\0")
            if wanted(message):
                return message


class Page:
    """One open page of a browser."""

    def __init__(self, browser: Browser, session: str, target: str) -> None:
        self._browser, self._session, self._target = browser, session, target

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One DevTools command to this page."""
        return self._browser.call(method, self._session, **parameters)

    def run(self, script: str) -> Any:
        """The value of a script's last expression, a promise's once it is there."""
        done = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in done:
            raise RuntimeError(json.dumps(done["exceptionDetails"])[:2000])
        return done["result"].get("value")

    def settle(self) -> None:
        """Waits until each picture's box holds a drawing or its apology, and for two frames more."""
        ends = time.monotonic() + PATIENCE_SECONDS
        while not self.run("[...document.querySelectorAll('.chart')].every((box) => box.childNodes.length)"):
            if time.monotonic() > ends:
                raise TimeoutError(f"a picture was not drawn in {PATIENCE_SECONDS:.0f} s")
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")

    def until(self, condition: str) -> None:
        """Waits until a script's value is true: after a change that the page notices in its own time."""
        ends = time.monotonic() + PATIENCE_SECONDS
        while not self.run(condition):
            if time.monotonic() > ends:
                raise TimeoutError(f"not within {PATIENCE_SECONDS:.0f} s: {condition}")
            time.sleep(0.05)

    def set_width(self, width: int, height: int = 900) -> None:
        """Gives the page another width in CSS pixels."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)

    def set_scheme(self, dark: bool) -> None:
        """Gives the page the dark or the light colour scheme."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def facts(self) -> PageFacts:
        """What can be said of the page now."""
        seen = self.run(_FACTS)
        mine = [e for e in self._browser.events if e.get("sessionId") == self._session]
        return PageFacts(
            console_errors=tuple(filter(None, map(_error_of, mine))),
            requests=tuple(e["params"]["request"]["url"] for e in mine if e["method"] == "Network.requestWillBeSent")[
                1:
            ],  # the first one is the page itself
            dialogs=tuple(e["params"]["message"] for e in mine if e["method"] == "Page.javascriptDialogOpening"),
            **seen,
        )

    def screenshot(self, path: Path, *, whole: bool = True) -> Path:
        """Writes a PNG of the page, or of what fits into the window."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole, **self._clip(whole))
        path.write_bytes(base64.b64decode(shot["data"]))
        return path

    def close(self) -> None:
        """Closes the page."""
        self._browser.call("Target.closeTarget", targetId=self._target)

    def _clip(self, whole: bool) -> dict[str, Any]:
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {**size, "x": 0, "y": 0, "scale": 1}} if whole else {}


def open_page(path: Path, *, width: int = 1400, dark: bool = False, screenshot: Path | None = None) -> PageFacts:
    """Opens one file in a browser of its own and says what was seen."""
    with Browser() as browser:
        page = browser.open(path, width=width, dark=dark)
        if screenshot:
            page.screenshot(screenshot)
        return page.facts()


def _error_of(event: dict[str, Any]) -> str | None:
    parameters = event["params"]
    if event["method"] == "Runtime.exceptionThrown":
        return str(parameters["exceptionDetails"])
    if event["method"] == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
        return str([argument.get("value", argument.get("description")) for argument in parameters["args"]])
    if event["method"] == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
        return str(parameters["entry"]["text"])
    return None
