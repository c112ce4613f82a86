"""Keys and certificates of a deployment: an authority of its own, the server's certificate, a key for each site.

EC keys throughout. Private keys are written with mode 0600 before a byte is in them, and never printed.
"""

import datetime as dt
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedgala.errors import ConfigError
from fedgala.storage import write_private

YEARS = 2  # for which the server's certificate is valid
LONG = 20  # the authority's, which every site holds
CURVE = ec.SECP384R1()  # what Flower accepts for a node's key


def authority(key_file: Path, certificate_file: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """A certificate authority for one deployment, its key and certificate written to files."""
    key = ec.generate_private_key(CURVE)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedgala deployment authority")])
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)  # signs certificates, no more
    certificate = (
        _valid(x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()), LONG)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA384())
    )
    write_private(key_file, _private(key))
    certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return certificate, key


def server_certificate(
    hosts: Sequence[str],
    issuer: tuple[x509.Certificate, ec.EllipticCurvePrivateKey],
    key_file: Path,
    certificate_file: Path,
) -> None:
    """A certificate for a server that is reached under any of `hosts`, names or addresses."""
    key = ec.generate_private_key(CURVE)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0][:64])])
    certificate = (
        _valid(x509.CertificateBuilder().subject_name(name).issuer_name(issuer[0].subject), YEARS)
        .public_key(key.public_key())
        .add_extension(x509.SubjectAlternativeName([_alternative(host) for host in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer[1].public_key()), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(issuer[1], hashes.SHA384())
    )
    write_private(key_file, _private(key))
    certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def site_key(private_file: Path, public_file: Path) -> None:
    """The key by which the server knows a site, in the format of OpenSSH, which Flower reads."""
    key = ec.generate_private_key(CURVE)
    write_private(private_file, _private(key, serialization.PrivateFormat.OpenSSH))
    form = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    public_file.write_bytes(key.public_key().public_bytes(*form) + b"\n")


def check_valid(certificate_file: Path, renew: str) -> None:
    """Refuse a certificate that nobody would accept any more.

    Raises:
        ConfigError: it has expired, it is not valid yet by this machine's clock, or it can't be read; with what to do.
    """
    try:
        certificate = x509.load_pem_x509_certificate(certificate_file.read_bytes())
    except OSError as error:
        raise ConfigError(f"{certificate_file}: {error.strerror}; copy the whole part of the deployment") from error
    except ValueError as error:
        raise ConfigError(f"{certificate_file} is not a certificate; copy it anew") from error
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if not begin <= dt.datetime.now(dt.UTC) <= end:
        raise ConfigError(f"{certificate_file} is valid from {begin:%Y-%m-%d} to {end:%Y-%m-%d}, not today: {renew}")


def _valid(builder: x509.CertificateBuilder, years: int) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - dt.timedelta(hours=1))
    return builder.not_valid_after(now + dt.timedelta(days=365 * years))


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _private(
    key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat = serialization.PrivateFormat.PKCS8
) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
