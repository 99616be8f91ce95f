"""The HTTP side of the exporter: a loopback server that never stands in the way of the control loop.

A port that is taken is no error. The server says so once, tries again in the background and serves as soon as it can.
"""

from __future__ import annotations

import errno
import logging
import socket
import threading
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, Literal, NamedTuple

FIRST_RETRY_S = 0.5
LAST_RETRY_S = 5.0  # so that a page is back within seconds of the port getting free
SOCKET_TIMEOUT_S = 5.0  # a scraper that says or takes nothing for this long is cut off
MOST_CLIENTS = 8  # each may hold a thread for the time above
POLL_S = 0.2  # how long closing may wait

log = logging.getLogger(__name__)

Render = Callable[[str], tuple[bytes, str]]
"""From the Accept header to the body and its content type."""


class PageStatus(NamedTuple):
    """State of the page. `reason` is empty while serving; `url` is None unless serving."""

    state: Literal["serving", "off", "disabled", "closed"]
    reason: str
    url: str | None

    def __str__(self) -> str:
        return self.url or (f"{self.state}: {self.reason}" if self.reason else self.state)


class PageServer:
    """Serves one page. `start` and `close` belong to one thread; `status` and `port` may be read from any."""

    def __init__(self, address: str, port: int, render: Render) -> None:
        self._address, self._wanted_port, self._render = address, port, render
        self._server: _Server | None = None
        self._status = PageStatus("off", "not started", None)
        self._stop = threading.Event()
        self._serving = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def status(self) -> PageStatus:
        """What the page does now."""
        return self._status

    @property
    def port(self) -> int | None:
        """The port that is served, also when 0 was asked for; None while off."""
        server = self._server
        return None if server is None else int(server.server_address[1])

    def start(self) -> None:
        """Begin to serve, or to wait for the port. Never raises because of the network."""
        bound = self._bind()
        self._thread = threading.Thread(target=self._run, args=(bound,), name="vla-monitor-page", daemon=True)
        self._thread.start()

    def wait_serving(self, timeout_s: float) -> bool:
        """Wait until the page is served; False after the time-out."""
        return self._serving.wait(timeout_s)

    def close(self) -> None:
        """Free the port and end the thread. May be called twice."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=2.0)
        self._server, self._thread = None, None
        self._serving.clear()
        self._status = PageStatus("closed", "", None)

    def _run(self, bound: bool) -> None:
        wait = FIRST_RETRY_S
        while not bound:
            if self._stop.wait(wait):
                return
            wait = min(2 * wait, LAST_RETRY_S)
            bound = self._bind()
        server = self._server
        if server is not None:
            with server:
                while not self._stop.is_set():
                    server.handle_request()

    def _bind(self) -> bool:
        try:
            server = _Server((self._address, self._wanted_port), self._render)
        except OSError as error:
            self._report_off(error)
            return False
        self._server = server
        host = f"[{self._address}]" if ":" in self._address else self._address
        self._status = PageStatus("serving", "", f"http://{host}:{server.server_address[1]}/metrics")
        self._serving.set()
        log.info("exporter on: %s", self._status.url)
        return True

    def _report_off(self, error: OSError) -> None:
        reason = f"{self._address}:{self._wanted_port} {_why(error)}"
        if reason != self._status.reason:
            log.warning("exporter off: %s; retrying every %g s. The monitor goes on. Free the port or set export.port.", reason, LAST_RETRY_S)
        self._status = PageStatus("off", reason, None)


class _Server(ThreadingHTTPServer):
    """Threads are daemons and bounded in number. The address is reused at once after a kill, never shared."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    allow_reuse_port = False
    request_queue_size = 16

    def __init__(self, where: tuple[str, int], render: Render) -> None:
        self.render = render
        self._places = threading.BoundedSemaphore(MOST_CLIENTS)
        self.timeout = POLL_S
        self.address_family = _family(where[0])
        super().__init__(where, _Handler)

    def server_bind(self) -> None:
        """Bind without the look-up of the host's name, which may wait for a name server."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Take a client, or hang up when too many are being served."""
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one client and give its place back."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Leave it: a client that went away or hung is its own affair."""
        log.debug("exporter: client %s failed", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    timeout = SOCKET_TIMEOUT_S
    server: _Server
    server_version = "vla-monitor"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer `/metrics`; everything else is told where to go."""
        if self.path.split("?")[0] == "/metrics":
            body, content_type = self.server.render(self.headers.get("Accept", ""))
            code = 200
        else:
            body, content_type, code = b"vla-monitor: the page is /metrics\n", "text/plain; charset=utf-8", 200 if self.path == "/" else 404
        self.send_response(code)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing per request."""


def refusal(address: str, port: int) -> str:
    """Why the page cannot be served there now; empty if it can."""
    try:
        with socket.socket(_family(address)) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address, port))
    except OSError as error:
        return _why(error)
    return ""


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _why(error: OSError) -> str:
    return "in use by another process" if error.errno == errno.EADDRINUSE else (error.strerror or str(error))


def fetch(url: str, timeout_s: float = 3.0) -> str:
    """Read the page once, past any proxy. Raises OSError when nobody answers in time."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=timeout_s) as answer:
        text: str = answer.read().decode("utf-8")
    return text
