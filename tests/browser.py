"""Headless Chromium, driven over its DevTools pipe: enough to look at one page, and nothing to install beside it."""

import base64
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from select import select
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
    --disable-component-update --disable-sync --hide-scrollbars --remote-debugging-pipe""".split()  # noqa: SIM905

WIRED = """import os, sys  # the browser reads at descriptor 3 and writes at 4
here, there = os.dup(int(sys.argv[1])), os.dup(int(sys.argv[2]))
os.dup2(here, 3), os.dup2(there, 4), os.set_inheritable(3, True), os.set_inheritable(4, True)
os.execv(sys.argv[3], sys.argv[3:])"""


def executable() -> str | None:
    """The browser that is installed here."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


@dataclass
class Page:
    """One tab. `errors` are what its console and its policy complained of, `requests` all that it asked for."""

    to: int
    back: int
    session: str = ""
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    _number: int = 0
    _rest: bytes = b""

    def call(self, method: str, **arguments: Any) -> Any:
        """Ask and wait for the answer; events on the way are kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": arguments}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self._event(answer.get("method", ""), answer.get("params", {}))

    def run(self, script: str) -> Any:
        """The value of an expression in the page; a promise is awaited."""
        found = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def open(self, path: Path, width: int, height: int, dark: bool) -> None:
        """Load a file as a screen of that size shows it, and wait until its charts are drawn."""
        self.errors.clear()
        self.requests.clear()
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.call("Page.navigate", url=path.resolve().as_uri())
        deadline = time.monotonic() + 90
        while self.run("document.documentElement?.dataset.drawn") != "yes":
            assert time.monotonic() < deadline, f"the page is not drawn: {self.errors}"
            time.sleep(0.1)

    def picture(self, path: Path, whole: bool = True) -> None:
        """Write what the page looks like as PNG."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            assert select([self.back], [], [], 90)[0], "the browser is silent"
            piece = os.read(self.back, 1 << 20)
            assert piece, "the browser has gone"
            self._rest += piece
        message, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def _event(self, kind: str, about: dict[str, Any]) -> None:
        if kind == "Runtime.exceptionThrown":
            details = about["exceptionDetails"]
            self.errors.append(str(details.get("exception", {}).get("description", details["text"])))
        elif kind == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning", "assert"):
            self.errors.append(str([argument.get("value", argument.get("description")) for argument in about["args"]]))
        elif kind == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
            self.errors.append(about["entry"]["text"])
        elif kind == "Network.requestWillBeSent" and not about["request"]["url"].startswith("data:"):
            self.requests.append(about["request"]["url"])


@contextmanager
def browser(profile: Path) -> Iterator[Page]:
    """A browser with an empty profile, and its one tab."""
    program = executable()
    assert program, "no browser"
    (child_in, to), (back, child_out) = os.pipe(), os.pipe()

    command = [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
    process = subprocess.Popen(
        [sys.executable, "-c", WIRED, str(child_in), str(child_out), *command],
        pass_fds=(child_in, child_out),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(child_in)
    os.close(child_out)
    try:
        page = Page(to, back)
        target = page.call("Target.createTarget", url="about:blank")["targetId"]
        page.session = page.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        yield page
    finally:
        process.terminate()
        process.wait(30)
        os.close(to)
        os.close(back)
