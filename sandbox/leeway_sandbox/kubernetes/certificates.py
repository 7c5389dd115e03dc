"""Creates the certificate authority of the sandbox and a server certificate."""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Sequence
from pathlib import Path

import trustme
from cryptography import x509

_LIFETIME = datetime.timedelta(days=30)
_LAST_RUN = datetime.timedelta(days=1)  # the least remaining lifetime at the start
_NAMES = ("localhost", "host.docker.internal", "kubernetes.default.svc", "127.0.0.1")


def server_context(folder: Path, names: Sequence[str] = ()) -> ssl.SSLContext:
    """Return the TLS context of a server with these names, in addition to the usual ones.

    It creates `tls.crt`, `tls.key` and a new `ca.crt` if one is missing, expires soon, or does not
    have all names and IP addresses.
    """
    wanted = sorted({*_NAMES, *names})
    if not _has_certificate_for(wanted, folder):
        folder.mkdir(parents=True, exist_ok=True)
        _make(folder, wanted)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    return context


def _has_certificate_for(names: Sequence[str], folder: Path) -> bool:
    if not all((folder / name).exists() for name in ("ca.crt", "tls.crt", "tls.key")):
        return False
    certificate = x509.load_pem_x509_certificate((folder / "tls.crt").read_bytes())
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    is_young = datetime.datetime.now(datetime.UTC) < certificate.not_valid_after_utc - _LAST_RUN
    return is_young and set(names) <= {str(name.value) for name in found}


def _make(folder: Path, names: Sequence[str]) -> None:
    authority = trustme.CA(organization_name="leeway-sandbox")
    expires = datetime.datetime.now(datetime.UTC) + _LIFETIME
    certificate = authority.issue_cert(*names, not_after=expires)
    authority.cert_pem.write_to_path(folder / "ca.crt")
    (folder / "tls.crt").write_bytes(certificate.cert_chain_pems[0].bytes())
    (folder / "tls.key").touch(mode=0o600)
    certificate.private_key_pem.write_to_path(folder / "tls.key")
