"""The server's certificates, read again when their files change: those of a night are renewed while it serves.

New files count for connections that begin after them. Files that cannot be used, such as a certificate whose key has
not been written yet, change nothing.
"""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

import grpc

from ort_core.plugin.files import changed_ns
from ort_serve.server_settings import Tls

log = logging.getLogger(__name__)
_Stamp = tuple[tuple[int, int, int], ...]


class Certificates:
    """The files of ``tls`` as HTTP and gRPC take them.

    Raises:
        OSError: a file cannot be read, or is no certificate or key; the message names it.
    """

    def __init__(self, tls: Tls) -> None:
        self._tls = tls
        self._seen = self._stamp()
        self._http: ssl.SSLContext | None = None
        self._grpc = self._read()

    def follow(self, context: ssl.SSLContext) -> None:
        """Keep HTTP's context up to date."""
        self._http = context

    def grpc_credentials(self) -> grpc.ServerCredentials:
        """Return what makes gRPC's port ask for the newest files with each connection."""
        return grpc.dynamic_ssl_server_credentials(
            self._grpc, self._newest, require_client_authentication=self._tls.clients is not None
        )

    def refresh(self) -> None:
        """Read the files again if they have changed."""
        try:
            stamp = self._stamp()
            if stamp == self._seen:
                return
            self._seen = stamp
            self._grpc = self._read()
            if self._http is not None:
                _fill(self._http, self._tls)
        except OSError as error:
            log.warning("the new certificates cannot be used, the old ones stay: %s", error)
        else:
            log.info("new certificates are used from now on")

    def _newest(self) -> grpc.ServerCertificateConfiguration:
        return self._grpc

    def _read(self) -> grpc.ServerCertificateConfiguration:
        _fill(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), self._tls)  # raises where a key is another certificate's
        pair = (self._tls.key.read_bytes(), self._tls.certificate.read_bytes())
        clients = None if self._tls.clients is None else self._tls.clients.read_bytes()
        return grpc.ssl_server_certificate_configuration([pair], clients)

    def _stamp(self) -> _Stamp:
        files = [file for file in (self._tls.certificate, self._tls.key, self._tls.clients) if file is not None]
        return tuple(_entry(file) for file in files)


def _entry(file: Path) -> tuple[int, int, int]:
    found = file.stat()
    return found.st_mtime_ns, changed_ns(file, found), found.st_ino


def _fill(context: ssl.SSLContext, tls: Tls) -> None:
    def refuse_to_ask() -> str:
        raise OSError(f"the key {tls.key} is encrypted; the server needs one without a passphrase")

    try:
        context.load_cert_chain(tls.certificate, tls.key, refuse_to_ask)
    except ssl.SSLError as error:
        raise OSError(
            f"{tls.certificate} and {tls.key} are not a certificate and its private key in PEM format: {error}"
        ) from error
    if tls.clients is None:
        return
    try:
        context.load_verify_locations(tls.clients)
    except ssl.SSLError as error:
        raise OSError(f"{tls.clients} has no certificates in PEM format: {error}") from error
