"""Running a server: where it may listen, how it starts, and how it ends without losing a request.

On SIGTERM or Ctrl-C it says that it is not ready, closes every connection with its answer for a moment, so
that balancers and clients go elsewhere, stops listening, answers all that it has taken, and ends with 0.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import ipaddress
import json
import logging
import math
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from xmcascade.errors import SettingError
from xmcascade.serve.app import Service, create_app
from xmcascade.serve.guard import LOOPBACK, Guard, Keys
from xmcascade.serve.limits import Limits
from xmcascade.serve.metrics import Metrics
from xmcascade.serve.shelf import Shelf

__all__ = ["Running", "check_address", "serve"]

log = logging.getLogger("xmcascade.serve")

SETTLE_SECONDS = 0.2  # between the last connection that is taken and the end of idle ones
HEADER_SECONDS = 10.0  # for a client to send the head of a request
KEEP_ALIVE_SECONDS = 75
BACKLOG = 2048
# For mallopt. -1: what is free at the end of a heap is given back from 16 MiB on; glibc would by and by keep
# 64 MiB a thread. -3: nothing below 32 MiB is mapped by itself: fresh pages cost more than most work on them.
MALLOC = {-1: 16 << 20, -3: 32 << 20}


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_address(host: str, key: str | None, insecure: bool) -> None:
    """Refuse to listen to others without a key, unless that is wanted.

    >>> check_address("0.0.0.0", None, insecure=False)
    Traceback (most recent call last):
    ...
    xmcascade.errors.SettingError: 0.0.0.0 can be reached by others, and there is no key. Remedy: set \
XMCASCADE_API_KEY, listen on 127.0.0.1, or say --insecure
    """
    if not (is_loopback(host) or key or insecure):
        what = f"{host} can be reached by others, and there is no key"
        remedy = "set XMCASCADE_API_KEY, listen on 127.0.0.1, or say --insecure"
        raise SettingError(what, remedy=remedy)


class _Protocol(HttpToolsProtocol):
    """HTTP, and a bound on how long the head of a request may take."""

    _late: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, **how: Any) -> None:
        super().__init__(*args, **how)
        self.access_log = False  # ours has no addresses and no queries in it

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._arm()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._arm()

    def on_headers_complete(self) -> None:
        self._disarm()
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self._arm()  # of what is no request yet, not even a beginning is told
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def _arm(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(HEADER_SECONDS, self._end)

    def _disarm(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _end(self) -> None:
        self._late = None
        if not self.transport.is_closing():
            self.transport.close()


class _Server(uvicorn.Server):
    """Ends in order: not ready, then deaf, then done."""

    def __init__(self, config: uvicorn.Config, service: Service, guard: Guard) -> None:
        super().__init__(config)
        self.service, self.guard = service, guard
        self._asked: float | None = None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        signals = signal.SIGINT, signal.SIGTERM
        before = {number: signal.signal(number, self.handle_exit) for number in signals}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.ask_to_stop(at_once=self._asked is not None)

    def ask_to_stop(self, at_once: bool = False) -> None:
        """End soon; at once: without waiting for anybody."""
        if at_once:
            self.force_exit = True
            logging.getLogger("uvicorn").setLevel(
                logging.CRITICAL
            )  # whoever is cut off now would be told there
        self._asked = self._asked or time.monotonic()
        self.service.stop()
        self.guard.stopping = True

    async def on_tick(self, counter: int) -> bool:
        await super().on_tick(counter)
        if self._asked is None:
            return False
        # Nobody needs to be told where nobody has been.
        quiet = time.monotonic() - self.guard.last_seen >= self.service.limits.drain_seconds
        return self.force_exit or quiet or time.monotonic() - self._asked >= self.service.limits.drain_seconds

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        loop, listening = asyncio.get_running_loop(), [each.dup() for each in sockets or []]
        for server in self.servers:
            server.close()
        for each in listening:
            each.setblocking(False)
            await self._take_rest(loop, each)
        await asyncio.sleep(SETTLE_SECONDS)  # what was taken at the last moment has sent its request by now
        await super().shutdown(sockets)

    async def _take_rest(self, loop: asyncio.AbstractEventLoop, listening: socket.socket) -> None:
        """Take the connections that the system has accepted for us; then close."""
        made = {"config": self.config, "server_state": self.server_state, "app_state": self.lifespan.state}
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:  # there is none
                listening.close()
                return
            await loop.connect_accepted_socket(partial(_Protocol, **made, _loop=loop), connection)


class Running:
    """A server in a thread of this process, for tests and notebooks.

    >>> from tempfile import TemporaryDirectory
    >>> from xmcascade import XRLinear
    >>> from xmcascade.serve import Client
    >>> with TemporaryDirectory() as folder:
    ...     _ = XRLinear().fit(["red apple", "blue sky"], [["fruit"], ["weather"]]).save(f"{folder}/m")
    ...     with Running(f"{folder}/m") as server:
    ...         Client(server.url).predict(["an apple"], k=1)[0][0].label
    'fruit'
    """

    def __init__(self, path: Any, *, port: int = 0, **options: Any) -> None:
        """options: as of `serve`."""
        self._server, self._socket = _made(path, port=port, **options)
        self.port: int = self._socket.getsockname()[1]
        self.url = _url(self._socket)
        self.service = self._server.service
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        self._server.run(sockets=[self._socket])

    def __enter__(self) -> Running:
        try:
            self.service.shelf.load()
        except BaseException:
            self._socket.close()
            self.service.close()
            raise
        self.service.ready()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.ask_to_stop()
        self._thread.join()


def _made(
    path: Any,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    key: str | None = None,
    insecure: bool = False,
    origins: list[str] | None = None,
    limits: Limits | None = None,
    threads: int | None = None,
    runtime: str | None = None,
) -> tuple[_Server, socket.socket]:
    check_address(host, key, insecure)
    limits, metrics = limits or Limits(), Metrics()
    shelf = Shelf(path, threads, runtime, changed=metrics.loaded)
    service = Service(shelf, limits, Keys(key or None, limits.session_seconds), metrics)
    # Without a key, a page from elsewhere could reach a server on this machine under a name of its own.
    hosts = {*LOOPBACK, host} if is_loopback(host) and not key else None
    app, guard = create_app(service, hosts=hosts, origins=origins)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host.strip("[]"), port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        what = f"cannot listen on {host} port {port} ({error.strerror})"
        raise SettingError(what, remedy="choose another port: --port 8001") from error
    config = uvicorn.Config(
        app, http=_Protocol, ws="none", lifespan="on", access_log=False, log_config=None, backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS, server_header=False,
        timeout_graceful_shutdown=math.ceil(limits.deadline_seconds),
    )  # fmt: skip
    return _Server(config, service, guard), listening


def _url(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(path: Any, *, ready: Callable[[str], Any] = lambda url: None, **options: Any) -> None:
    """Serve a model folder, or a folder of several, until SIGTERM or Ctrl-C.

    host, port: where to listen; key: that every request must show, but those for /livez and /readyz;
    insecure: whether others may be served without one; origins: web sites whose pages may call; limits: see
    `Limits`; threads, runtime: as `load`; ready: is called with the address when it may be asked.

    >>> serve("no/such/model", port=0)
    Traceback (most recent call last):
    ...
    xmcascade.errors.ModelFolderError: no/such/model: there is no model folder here. Remedy: check the path
    """
    with suppress(OSError, AttributeError, TypeError):  # not on every system
        mallopt = ctypes.CDLL(None).mallopt
        for name, value in MALLOC.items():
            mallopt(name, value)
    server, listening = _made(path, **options)
    service = server.service
    counted, failed = service.shelf.changed, list[BaseException]()

    def changed(name: str, fine: bool) -> None:
        # What is loaded stays: looking through it for garbage would stop everybody for 0.2 s at a time.
        counted(name, fine)
        gc.unfreeze()
        gc.collect()
        gc.freeze()

    service.shelf.changed = changed

    def load() -> None:
        try:
            service.shelf.load()
            service.ready()
            log.info(json.dumps({"event": "ready", "models": service.shelf.names}))
            ready(url)
        except BaseException as error:
            failed.append(error)
            server.ask_to_stop()

    url = _url(listening)
    log.info(json.dumps({"event": "listening", "url": url}))
    threading.Thread(target=load, name="xmcascade-load", daemon=True).start()
    server.run(sockets=[listening])
    listening.close()
    if failed:
        raise failed[0]
    log.info(json.dumps({"event": "stopped"}))
