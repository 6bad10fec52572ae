"""Images from URLs: one deadline for everything, http and https only, public hosts only."""

from __future__ import annotations

import socket
from contextlib import ExitStack, suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from ipaddress import ip_address, ip_network
from string import printable as printable_ascii
from threading import Timer
from time import monotonic
from typing import Any
from urllib import request
from urllib.error import HTTPError
from urllib.parse import quote

from fair_tta._io import printable
from fair_tta.errors import ImageError

URL_PREFIXES = ("http://", "https://")
_MAX_BYTES = 64 * 2**20  # more than photos have
_BYTES_PER_READ = 2**16
_MIN_TIMEOUT = 1e-3  # seconds: sockets take 0 for "do not wait at all"


class _Fetch(ExitStack):
    """Deadline and rules of one fetch, which all its connections share, redirects included."""

    def __init__(self, timeout: float, allow_private: bool) -> None:
        super().__init__()
        self.deadline = monotonic() + timeout
        self.allow_private = allow_private

    @property
    def seconds_left(self) -> float:
        return max(self.deadline - monotonic(), _MIN_TIMEOUT)

    @property
    def is_late(self) -> bool:
        return self.deadline <= monotonic()

    def connect(self, host_and_port: tuple[str, int], *_: Any) -> socket.socket:
        """Connect to the first address that answers in time, or raise an `OSError`.

        The address that is checked is the one that is called, so that a name cannot lead to
        another host in between.
        """
        last_error = OSError("its name has no address")
        for family, kind, protocol, _name, address in socket.getaddrinfo(
            *host_and_port, 0, socket.SOCK_STREAM
        ):
            host = str(address[0]).partition("%")[0]
            if not (self.allow_private or _is_public(host)):
                raise OSError(
                    f"{host} is not a public address; private_urls=True allows it"
                )
            connection = socket.socket(family, kind, protocol)
            try:
                connection.settimeout(self.seconds_left)
                connection.connect(address)
                return connection
            except OSError as error:
                connection.close()
                last_error = error
        raise last_error

    def close_at_deadline(self, connection: socket.socket) -> None:
        """Shut a connection down when the time is up: timeouts of sockets are per read."""
        duplicate = self.enter_context(connection.dup())  # TLS takes the original over
        timer = Timer(self.seconds_left, _shut_down, [duplicate])
        timer.daemon = True
        self.callback(timer.cancel)
        timer.start()


def _shut_down(connection: socket.socket) -> None:
    with suppress(OSError):  # it is closed already
        connection.shutdown(socket.SHUT_RDWR)


class _HTTPConnection(HTTPConnection):
    fetch: _Fetch

    def connect(self) -> None:
        self._create_connection = self.fetch.connect
        super().connect()
        self.fetch.close_at_deadline(self.sock)


class _HTTPSConnection(HTTPSConnection, _HTTPConnection):
    """A connection that uses `_HTTPConnection.connect`, then TLS, all within the deadline."""


class _Handler(request.AbstractHTTPHandler):
    """A handler of urllib whose connections belong to a fetch."""

    def __init__(self, fetch: _Fetch) -> None:
        super().__init__()
        self._fetch = fetch

    def http_open(self, req: request.Request) -> Any:
        return self._open(_HTTPConnection, req)

    def https_open(self, req: request.Request) -> Any:
        return self._open(_HTTPSConnection, req)

    def _open(
        self, connection_class: type[_HTTPConnection], req: request.Request
    ) -> Any:
        def connect(host: str, **options: Any) -> _HTTPConnection:
            connection = connection_class(host, **options)
            connection.fetch = self._fetch
            return connection

        return self.do_open(connect, req)

    http_request = https_request = request.AbstractHTTPHandler.do_request_


_NAT64 = ip_network("64:ff9b::/96")
# IPv6 addresses that stand for others of IPv4, which may be private; `is_global` of Python 3.11
# is true for them.
_EMBEDDED_IPV4 = (
    ip_network("::/96"),
    ip_network("64:ff9b:1::/48"),
    ip_network("2002::/16"),
)


def _is_public(host: str) -> bool:
    address = ip_address(host)
    if address in _NAT64:
        address = ip_address(int(address) & 0xFFFFFFFF)
    has_ipv4 = any(address in network for network in _EMBEDDED_IPV4)
    return address.is_global and not has_ipv4


class _Redirects(request.HTTPRedirectHandler):
    def http_error_302(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any
    ) -> Any:
        fp.read = lambda: b""  # urllib would read the whole body, which may never end
        return super().http_error_302(req, fp, code, msg, headers)

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


def fetch_image(address: str, timeout: float, *, private: bool = False) -> bytes:
    """Return the bytes behind a URL.

    Args:
        address: begins with http:// or https://; redirects may lead to such URLs only.
        timeout: seconds for everything together, except the lookup of a name.
        private: True to allow hosts that are not public, such as those of a local network.

    Raises:
        ImageError: it cannot be fetched, not in time, or is too large.
    """
    opener = request.OpenerDirector()  # without handlers for files, FTP and data
    with _Fetch(timeout, private) as fetch:
        for handler in (
            _Handler(fetch), request.ProxyHandler(), request.UnknownHandler(),
            _Redirects(), request.HTTPDefaultErrorHandler(),
            request.HTTPErrorProcessor(),
        ):  # fmt: skip
            opener.add_handler(handler)
        try:
            # Other characters are quoted as browsers do.
            quoted = quote(address, safe=printable_ascii)
            with opener.open(quoted, timeout=fetch.seconds_left) as response:
                return _read_response(response, fetch)
        except (OSError, ValueError, HTTPException) as error:
            if isinstance(error, HTTPError):
                error.close()  # it holds the response
            reason = printable(str(error))
            if fetch.is_late:
                reason = "it takes longer than `timeout`"
            raise ImageError(f"cannot fetch {address!r}: {reason}") from error


def _read_response(response: Any, fetch: _Fetch) -> bytes:
    data = bytearray()
    while part := response.read1(_BYTES_PER_READ):
        data += part
        if len(data) > _MAX_BYTES:
            raise ValueError(f"it has more than {_MAX_BYTES >> 20} MB")
    if fetch.is_late:  # a connection that was shut down looks like the end of the file
        raise TimeoutError
    return bytes(data)
