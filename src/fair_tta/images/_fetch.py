"""Images behind addresses: one deadline for everything, http and https only, public hosts only."""

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
_MOST_BYTES = 64 * 2**20
_AT_ONCE = 2**16


class _Fetch(ExitStack):
    """What the connections of one fetch share, redirects included."""

    def __init__(self, timeout: float, private: bool) -> None:
        super().__init__()
        self.end, self.private = monotonic() + timeout, private

    @property
    def left(self) -> float:
        return max(self.end - monotonic(), 1e-3)

    def connect(self, place: tuple[str, int], *_: Any) -> socket.socket:
        """The first address that answers in time; others than public ones are never called."""
        failed = OSError("its name has no address")
        for family, kind, protocol, _name, there in socket.getaddrinfo(
            *place, 0, socket.SOCK_STREAM
        ):
            host = str(there[0]).partition("%")[0]
            if not (self.private or _is_public(host)):
                raise OSError(
                    f"{host} is not a public address; private_urls=True allows it"
                )
            line = socket.socket(family, kind, protocol)
            try:
                line.settimeout(self.left)
                line.connect(there)
                return line
            except OSError as error:
                line.close()
                failed = error
        raise failed

    def watch(self, connected: socket.socket) -> None:
        """Cut the line when the time is up."""
        line = self.enter_context(connected.dup())  # TLS takes the first one over
        timer = Timer(self.left, _cut, [line])
        timer.daemon = True
        self.callback(timer.cancel)
        timer.start()


def _cut(line: socket.socket) -> None:
    with suppress(OSError):  # it is closed already
        line.shutdown(socket.SHUT_RDWR)


class _Plain(HTTPConnection):
    fetch: _Fetch

    def connect(self) -> None:
        self._create_connection = self.fetch.connect
        super().connect()
        self.fetch.watch(self.sock)


class _Secure(HTTPSConnection, _Plain):
    """Its `connect` is that of `_Plain`, then TLS, so that the handshake is within the deadline."""


class _Handler(request.AbstractHTTPHandler):
    def __init__(self, fetch: _Fetch) -> None:
        super().__init__()
        self._fetch = fetch

    def _opened(self, kind: type[_Plain], asked: request.Request) -> Any:
        def connection(host: str, **options: Any) -> _Plain:
            made = kind(host, **options)
            made.fetch = self._fetch
            return made

        return self.do_open(connection, asked)

    def http_open(self, asked: request.Request) -> Any:
        return self._opened(_Plain, asked)

    def https_open(self, asked: request.Request) -> Any:
        return self._opened(_Secure, asked)

    http_request = https_request = request.AbstractHTTPHandler.do_request_


_NAT64 = ip_network("64:ff9b::/96")
_WRAPPED = tuple(map(ip_network, ("::/96", "64:ff9b:1::/48", "2002::/16")))
"""IPv6 addresses that stand for others of IPv4, which may be private."""


def _is_public(host: str) -> bool:
    address = ip_address(host)
    if address in _NAT64:
        address = ip_address(int(address) & 0xFFFFFFFF)
    return address.is_global and not any(address in network for network in _WRAPPED)


class _Redirects(request.HTTPRedirectHandler):
    def http_error_302(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any
    ) -> Any:
        fp.read = lambda: b""  # the whole of what has perhaps no end
        return super().http_error_302(req, fp, code, msg, headers)

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


def fetch_image(address: str, timeout: float, *, private: bool = False) -> bytes:
    """The bytes behind an address.

    Args:
        address: begins with http:// or https://; redirects may lead to such addresses only.
        timeout: seconds for everything together, but for the lookup of a name.
        private: whether hosts that are not public may be asked, such as those of a local network.

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
            written = quote(
                address, safe=printable_ascii
            )  # others as browsers send them
            answer = opener.open(written, timeout=fetch.left)
            with answer:
                return _read(answer, fetch)
        except (OSError, ValueError, HTTPException) as error:
            if isinstance(error, HTTPError):
                error.close()  # it holds the answer
            late = fetch.end <= monotonic()
            reason = "it takes longer than `timeout`" if late else printable(str(error))
            raise ImageError(f"cannot fetch {address!r}: {reason}") from error


def _read(answer: Any, fetch: _Fetch) -> bytes:
    data = bytearray()
    while part := answer.read1(_AT_ONCE):
        data += part
        if len(data) > _MOST_BYTES:
            raise ValueError(f"it has more than {_MOST_BYTES >> 20} MB")
    if fetch.end <= monotonic():  # the line was cut, which looks like its end
        raise TimeoutError
    return bytes(data)
