"""Certificates and keys of a federation: one authority, one server, a key pair for each node.

The server proves who it is by a certificate that the authority has signed; a node proves who it is
by an ECDSA key that was registered with the server. Files are in the formats that Flower takes.
"""

from __future__ import annotations

import datetime
import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from clove.errors import CloveError
from clove.extras import require_flower
from clove.folders import plain_errors, write_atomically

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate, CertificateBuilder, ExtensionType, GeneralName, Name

PRIVATE, PUBLIC = 0o600, 0o644
MOST_NODES = 10_000
HERE = ("localhost", "127.0.0.1", "::1")
"""Always in the server's certificate: Flower's own processes reach the server from beside it."""
AUTHORITY_DAYS = 3650
HOST = re.compile(r"(?!-)[a-z0-9-]{1,63}(?<!-)(\.(?!-)[a-z0-9-]{1,63}(?<!-))*", re.IGNORECASE)


@dataclass(frozen=True)
class Certificates:
    """Where the certificates and keys of a federation are."""

    folder: Path

    @property
    def authority(self) -> Path:
        """The authority's certificate, which every machine gets."""
        return self.folder / "ca.crt"

    @property
    def authority_key(self) -> Path:
        """The authority's key: whoever has it can pretend to be the server."""
        return self.folder / "ca.key"

    @property
    def server(self) -> Path:
        """The server's certificate."""
        return self.folder / "server.crt"

    @property
    def server_key(self) -> Path:
        """The server's key, which stays on the server."""
        return self.folder / "server.key"

    def node_key(self, number: int) -> Path:
        """Return the key of a node, which goes to that node alone."""
        return self.folder / "nodes" / f"node-{number}"

    def node_public(self, number: int) -> Path:
        """Return the public key of a node, which is registered with the server."""
        return self.node_key(number).with_suffix(".pub")

    @property
    def of_the_server(self) -> list[Path]:
        """The files without which there is no server."""
        return [self.authority, self.authority_key, self.server, self.server_key]

    @property
    def nodes(self) -> int:
        """How many nodes there are key pairs for."""
        return len(list((self.folder / "nodes").glob("node-*.pub")))


def make_certificates(
    folder: str | Path, hosts: Sequence[str], nodes: int, days: int = 365, force: bool = False
) -> Certificates:
    """Write an authority, a certificate for a server of these names, and key pairs for nodes.

    What stands in the folder already is replaced only by `force`.
    """
    made = Certificates(Path(folder))
    names = _checked_hosts(hosts)
    _check_numbers(nodes, days)
    require_flower()  # which brings the cryptography
    with plain_errors(made.folder, "the certificates"):
        _refuse_to_overwrite(made, force)
        # The keys of nodes there were before: nobody is to take them for registered ones.
        for old in (made.folder / "nodes").glob("node-*"):
            old.unlink()
        made.folder.mkdir(parents=True, exist_ok=True)
        _write_server(made, names, days, *_write_authority(made))
        _write_missing_nodes(made, nodes)
    return made


def renew_certificates(
    folder: str | Path, hosts: Sequence[str], nodes: int, days: int = 365
) -> Certificates:
    """Write a new certificate for the server, signed by the authority that is there.

    Without hosts it has the names it had. Nodes keep their keys; those that lack get theirs.
    """
    made = Certificates(Path(folder))
    _check_numbers(nodes, days)
    require_flower()
    with plain_errors(made.folder, "the certificates"):
        signing = _read_authority(made)
        names = _checked_hosts(hosts or _names_so_far(made))
        _write_server(made, names, days, *signing)
        _write_missing_nodes(made, nodes)
    return made


def with_keys(folder: str | Path, nodes: int) -> Certificates:
    """Return certificates with keys for so many nodes; what is there stays, what lacks is made."""
    made = Certificates(Path(folder))
    missing = [file for file in made.of_the_server if not file.exists()]
    if missing == made.of_the_server:
        return make_certificates(folder, [], nodes)
    if missing:
        raise CloveError(
            f"{made.folder} has no {missing[0].name}, but other files of a server: put it back, or "
            f"make all anew by `clove flower certs {made.folder} --force`"
        )
    require_flower()
    with plain_errors(made.folder, "the certificates"):
        _write_missing_nodes(made, nodes)
    return made


def _check_numbers(nodes: int, days: int) -> None:
    if not 0 <= nodes <= MOST_NODES:
        raise CloveError(f"nodes must be from 0 to {MOST_NODES:,}, not {nodes}")
    if not 1 <= days <= AUTHORITY_DAYS:
        raise CloveError(f"days must be from 1 to {AUTHORITY_DAYS}, not {days}")


def _checked_hosts(hosts: Sequence[str]) -> list[str]:
    """Return the names of the server, each once, with those it has for itself."""
    for host in hosts:
        if not _is_address(host) and not HOST.fullmatch(host):
            raise CloveError(
                f"{host!r} is neither a host name nor an IP address: give the name by which nodes "
                "reach the server, without a port"
            )
    return list(dict.fromkeys([*hosts, *HERE]))


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _refuse_to_overwrite(made: Certificates, force: bool) -> None:
    nodes = (made.folder / "nodes").glob("node-*")
    there = [file for file in [*made.of_the_server, *nodes] if file.exists()]
    if there and not force:
        raise CloveError(
            f"{made.folder} holds certificates already ({there[0].name}). Choose another folder; "
            "or, with --renew, give the server a new certificate, and nodes that have none their "
            "keys; or replace all with --force: nodes then need the new ca.crt and new keys"
        )


def _write_authority(made: Certificates) -> tuple[Certificate, EllipticCurvePrivateKey]:
    key = _new_key()
    authority = _authority(key)
    write_atomically(made.authority_key, _pem(key), PRIVATE)
    write_atomically(made.authority, _encoded(authority), PUBLIC)
    return authority, key


def _read_authority(made: Certificates) -> tuple[Certificate, EllipticCurvePrivateKey]:
    """Return the authority that is there, which can sign."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from cryptography.x509 import load_pem_x509_certificate

    for file in (made.authority, made.authority_key):
        if not file.exists():
            raise CloveError(
                f"{made.folder} has no {file.name}, without which nothing can be signed: put it "
                "there for as long as this takes, or make all anew in another folder"
            )
    try:
        authority = load_pem_x509_certificate(made.authority.read_bytes())
        key = load_pem_private_key(made.authority_key.read_bytes(), None)
    except (ValueError, TypeError) as error:
        raise CloveError(f"the authority in {made.folder} cannot be read: {error}") from None
    if key.public_key() != authority.public_key():
        raise CloveError(
            f"{made.authority_key} is not the key of {made.authority}: nodes trust the latter"
        )
    return authority, cast("EllipticCurvePrivateKey", key)


def _names_so_far(made: Certificates) -> list[str]:
    """Return the names in the server's certificate; none where there is no certificate."""
    from cryptography.x509 import DNSName, IPAddress, SubjectAlternativeName
    from cryptography.x509 import load_pem_x509_certificate as load

    if not made.server.exists():
        return []
    try:
        extensions = load(made.server.read_bytes()).extensions
    except ValueError as error:
        raise CloveError(f"{made.server} cannot be read ({error}): name its hosts") from None
    names = extensions.get_extension_for_class(SubjectAlternativeName).value
    addresses = map(str, names.get_values_for_type(IPAddress))
    return [*names.get_values_for_type(DNSName), *addresses]


def _write_server(
    made: Certificates,
    names: Sequence[str],
    days: int,
    authority: Certificate,
    authority_key: EllipticCurvePrivateKey,
) -> None:
    """Write the server's certificate, signed by the authority, and its key."""
    from cryptography.x509 import DNSName, IPAddress

    key = _new_key()
    alternatives = [
        IPAddress(ipaddress.ip_address(name)) if _is_address(name) else DNSName(name)
        for name in names
    ]
    server = _server(key, alternatives, authority, authority_key, days)
    write_atomically(made.server_key, _pem(key), PRIVATE)
    write_atomically(made.server, _encoded(server), PUBLIC)


def _write_missing_nodes(made: Certificates, nodes: int) -> None:
    """Write pairs of keys for so many nodes, except for those that have one."""
    (made.folder / "nodes").mkdir(mode=0o700, exist_ok=True)
    for number in range(nodes):
        pair = [made.node_key(number), made.node_public(number)]
        lacks = [file for file in pair if not file.exists()]
        if lacks == pair:
            _write_node(made, number)
        elif lacks:
            raise CloveError(
                f"{made.folder} has no {lacks[0].name}, but the other half of this pair of "
                "keys: put it back, or remove the other half for a new pair"
            )


def _write_node(made: Certificates, number: int) -> None:
    """Write a key pair as `ssh-keygen -t ecdsa` does, which is what Flower reads."""
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    key = _new_key()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    write_atomically(made.node_key(number), private, PRIVATE)
    write_atomically(made.node_public(number), public + f" node-{number}\n".encode(), PUBLIC)


def _new_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP384R1())


def _authority(key: EllipticCurvePrivateKey) -> Certificate:
    from cryptography import x509

    builder = _certificate("clove federation authority", AUTHORITY_DAYS)
    own = builder.public_key(key.public_key()).issuer_name(_named("clove federation authority"))
    return _signed(
        own,
        key,
        x509.BasicConstraints(ca=True, path_length=0),
        _usage(signs_certificates=True),
        x509.SubjectKeyIdentifier.from_public_key(key.public_key()),
    )


def _server(
    key: EllipticCurvePrivateKey,
    names: Sequence[GeneralName],
    authority: Certificate,
    authority_key: EllipticCurvePrivateKey,
    days: int,
) -> Certificate:
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    builder = _certificate("clove federation server", days)
    return _signed(
        builder.public_key(key.public_key()).issuer_name(authority.subject),
        authority_key,
        x509.BasicConstraints(ca=False, path_length=None),
        _usage(signs_certificates=False),
        x509.SubjectAlternativeName(names),
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]),
        x509.SubjectKeyIdentifier.from_public_key(key.public_key()),
        x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()),
    )


def _named(name: str) -> Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _certificate(subject: str, days: int) -> CertificateBuilder:
    from cryptography import x509

    # Clocks of machines differ a little: a certificate is good from an hour ago.
    start = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
    return (
        x509.CertificateBuilder()
        .subject_name(_named(subject))
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=days))
    )


def _usage(signs_certificates: bool) -> ExtensionType:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _signed(
    builder: CertificateBuilder, by: EllipticCurvePrivateKey, *extensions: ExtensionType
) -> Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA384

    binding = (x509.BasicConstraints, x509.KeyUsage)
    for extension in extensions:
        builder = builder.add_extension(extension, critical=isinstance(extension, binding))
    return builder.sign(by, SHA384())


def _pem(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _encoded(certificate: Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)
