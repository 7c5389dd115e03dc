"""Makes the sandbox's own certificate authority and the server certificate it signs."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME = datetime.timedelta(days=30)
_LAST_RUN = datetime.timedelta(days=1)  # what a certificate must still last when a run begins
_NAMES = ("localhost", "host.docker.internal", "kubernetes.default.svc", "127.0.0.1")


def alternative_name(name: str) -> x509.GeneralName:
    """Read a name or an IP address by which a server is reached; ValueError for neither."""
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def server_context(folder: Path, names: Sequence[x509.GeneralName] = ()) -> ssl.SSLContext:
    """Return the TLS side of a server that is reached by these names, besides the usual ones.

    `tls.crt` and `tls.key` are made, and a new `ca.crt` with them, where they are missing, have
    expired or lack one of the names.
    """
    wanted = list(dict.fromkeys([*map(alternative_name, _NAMES), *names]))
    if not _has_certificate_for(wanted, folder):
        folder.mkdir(parents=True, exist_ok=True)
        _make(folder, wanted)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    return context


def _has_certificate_for(names: Sequence[x509.GeneralName], folder: Path) -> bool:
    if not all((folder / name).exists() for name in ("ca.crt", "tls.crt", "tls.key")):
        return False
    certificate = x509.load_pem_x509_certificate((folder / "tls.crt").read_bytes())
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    is_young = datetime.datetime.now(datetime.UTC) < certificate.not_valid_after_utc - _LAST_RUN
    return is_young and set(names) <= set(found)


def _make(folder: Path, names: Sequence[x509.GeneralName]) -> None:
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "leeway-sandbox-ca")])
    authority_id = x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key())
    authority = (
        _certificate(authority_name, authority_name, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(authority_id, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "leeway-sandbox")])
    issuer_id = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(authority_id)
    certificate = (
        _certificate(name, authority_name, key.public_key())
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(issuer_id, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    (folder / "ca.crt").write_bytes(authority.public_bytes(encoding))
    (folder / "tls.crt").write_bytes(certificate.public_bytes(encoding))
    private = key.private_bytes(
        encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "tls.key").touch(mode=0o600)
    (folder / "tls.key").write_bytes(private)


def _certificate(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + _LIFETIME)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
