"""A real headless Chromium, driven over the WebDriver protocol."""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
KEYS = {
    "Enter": "\ue007",
    "Escape": "\ue00c",
    "Left": "\ue012",
    "Up": "\ue013",
    "Right": "\ue014",
    "Down": "\ue015",
}


def missing() -> str:
    """Says which program is missing; empty if none is."""
    absent = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"{' and '.join(absent)} cannot be found" if absent else ""


class Browser:
    """One session of one window."""

    def __init__(self, base: str, session: str) -> None:
        self._url = f"{base}/session/{session}"

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        return _request(method, f"{self._url}{path}", body)

    def open(self, page: Path, hash_: str = "") -> None:
        """Opens a page and waits for its scripts. A page that differs in its hash loads anew."""
        self.call("POST", "/url", {"url": "about:blank"})
        self.logs("browser"), self.logs("performance")
        self.call("POST", "/url", {"url": page.resolve().as_uri() + hash_})
        self.wait("document.documentElement.dataset.ready === 'yes'")

    def js(self, script: str, *args: Any) -> Any:
        """Evaluates an expression, or runs statements with a ``return``."""
        text = script if "return" in script else f"return {script}"
        return self.call("POST", "/execute/sync", {"script": text, "args": list(args)})

    def wait(self, expression: str, *, seconds: float = 30) -> None:
        """Waits until an expression is true."""
        deadline = time.monotonic() + seconds
        while not self.js(f"Boolean({expression})"):
            assert time.monotonic() < deadline, f"still false: {expression}"
            time.sleep(0.02)

    def find(self, selector: str) -> str:
        found = self.call("POST", "/element", {"using": "css selector", "value": selector})
        return str(found[ELEMENT])

    def click(self, selector: str) -> None:
        self.js(
            f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block:'center'}})"
        )
        self.call("POST", f"/element/{self.find(selector)}/click", {})

    def type(self, selector: str, text: str) -> None:
        """Types text, or the key that ``KEYS`` names."""
        keys = KEYS.get(text, text)
        self.call("POST", f"/element/{self.find(selector)}/value", {"text": keys})

    def mouse(self, selector: str, *moves: tuple[str, float, float], modifier: str = "") -> None:
        """Moves (``move``), presses (``down``) and releases (``up``) the mouse at positions in the
        element, relative to its upper left corner."""
        box = self.js(
            "const r = document.querySelector(arguments[0]).getBoundingClientRect();"
            " return [r.left, r.top]",
            selector,
        )
        actions: list[dict[str, Any]] = []
        for what, x, y in moves:
            place = {"x": round(box[0] + x), "y": round(box[1] + y), "origin": "viewport"}
            actions.append({"type": "pointerMove", "duration": 20, **place})
            if what != "move":
                actions.append({"type": f"pointer{what.capitalize()}", "button": 0})
        devices = [{"type": "pointer", "id": "mouse", "actions": actions}]
        if modifier:
            pauses = [{"type": "pause"}] * (len(actions) - 1)
            keys = [{"type": "keyDown", "value": modifier}, *pauses]
            keys.append({"type": "keyUp", "value": modifier})
            devices[0]["actions"] = [{"type": "pause"}, *actions]
            devices.append({"type": "key", "id": "keys", "actions": keys})
        self.call("POST", "/actions", {"actions": devices})

    def wheel(self, selector: str, x: int, y: int, delta_y: int) -> None:
        """Turns the wheel over an element, with the Control key held."""
        self.js(
            "document.querySelector(arguments[0]).dispatchEvent(new WheelEvent('wheel',"
            " {deltaY: arguments[1], ctrlKey: true, bubbles: true, cancelable: true,"
            " clientX: arguments[2], clientY: arguments[3]})); return 0",
            selector,
            delta_y,
            x,
            y,
        )

    def devtools(self, command: str, **params: Any) -> Any:
        return self.call("POST", "/goog/cdp/execute", {"cmd": command, "params": params})

    def resize(self, width: int, height: int) -> None:
        self.devtools(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def prefer(self, scheme: str, *, media: str = "") -> None:
        """``scheme`` is ``light`` or ``dark``."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.devtools("Emulation.setEmulatedMedia", features=[feature], media=media)

    def logs(self, kind: str) -> list[dict[str, Any]]:
        """Entries since the last call: ``browser`` (the console) or ``performance`` (events)."""
        return list(self.call("POST", "/se/log", {"type": kind}))

    def console(self) -> list[str]:
        return [entry["message"] for entry in self.logs("browser")]

    def requests(self) -> list[str]:
        """Addresses that the page has asked for."""
        events = [json.loads(entry["message"])["message"] for entry in self.logs("performance")]
        sent = [event for event in events if event["method"] == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]

    def print(self) -> bytes:
        return base64.b64decode(self.call("POST", "/print", {"background": True}))

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("GET", "/screenshot")))


@contextmanager
def chromium() -> Iterator[Browser]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # Without a bus of its own, Chromium waits for one of the desktop.
    environment = {**os.environ, "DBUS_SESSION_BUS_ADDRESS": "disabled:"}
    driver = subprocess.Popen(
        ["chromedriver", f"--port={port}", "--log-level=OFF"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    base = f"http://127.0.0.1:{port}"
    try:
        _await_driver(base)
        options = {
            "args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"],
            "binary": shutil.which("chromium"),
        }
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        capabilities = {"capabilities": {"alwaysMatch": wanted}}
        session = _request("POST", f"{base}/session", capabilities)["sessionId"]
        browser = Browser(base, session)
        browser.resize(1300, 900)
        yield browser
        with suppress(urllib.error.URLError):
            browser.call("DELETE", "")
    finally:
        driver.terminate()
        driver.wait(timeout=30)


def _await_driver(base: str) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            if _request("GET", f"{base}/status")["ready"]:
                return
        except (urllib.error.URLError, ConnectionError):
            assert time.monotonic() < deadline, "chromedriver does not answer"
        time.sleep(0.05)


def _request(method: str, url: str, body: dict[str, Any] | None = None) -> Any:
    data = None if method == "GET" else json.dumps(body or {}).encode()
    request = urllib.request.Request(
        url, data=data, method=method, headers={"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)["value"]
    except urllib.error.HTTPError as error:
        raise AssertionError(error.read().decode()[:2_000]) from None
