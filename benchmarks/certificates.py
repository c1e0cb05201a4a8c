"""Certificates of sites, for tests and the testbed: made when they are needed, valid for a day."""

from __future__ import annotations

import datetime
from functools import cache

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from transom.sites.secured import Identity


@cache
def authority(name: str) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Return who signs, the same one for a name at each call, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    return _signed(name, key, (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key), ()), key


@cache
def identity(name: str, by: str = "authority") -> Identity:
    """Return what a site of this name shows others, signed by an authority; all believe that of the usual name."""
    key = ec.generate_private_key(ec.SECP256R1())
    issuer, signer = authority(by)
    chain = _signed("any", key, (issuer.subject, signer), (name,))
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Identity(_pem(chain), secret, _pem(authority("authority")[0]))


def _signed(subject, key, issuer, names) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(issuer[0])
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=not names, path_length=None), critical=True)
    )
    if names:
        made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(each) for each in names]), critical=False)
    return made.sign(issuer[1], hashes.SHA256())


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
