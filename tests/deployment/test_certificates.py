"""Certificates and keys: what Flower can read, what nobody else can, and what is never lost."""

from __future__ import annotations

import ipaddress
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from clove.cli import app
from clove.deployment.certificates import (
    Certificates,
    make_certificates,
    renew_certificates,
    with_keys,
)
from clove.errors import CloveError

pytest.importorskip("flwr", reason="no Flower here: pip install 'clove-fl[flower]'")

from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    load_pem_private_key,
    load_ssh_private_key,
    load_ssh_public_key,
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    hosts = ["fed.example.org", "10.1.2.3"]
    return make_certificates(tmp_path_factory.mktemp("keys") / "certs", hosts, nodes=2)


def certificate(file: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(file.read_bytes())


def names(made: Certificates) -> x509.SubjectAlternativeName:
    kind = x509.SubjectAlternativeName
    return certificate(made.server).extensions.get_extension_for_class(kind).value


def test_the_authority_vouches_for_the_server(made: Certificates) -> None:
    certificate(made.server).verify_directly_issued_by(certificate(made.authority))


def test_the_server_is_known_by_its_names_and_to_itself(made: Certificates) -> None:
    assert set(names(made).get_values_for_type(x509.DNSName)) == {"fed.example.org", "localhost"}
    assert set(names(made).get_values_for_type(x509.IPAddress)) == {
        ipaddress.ip_address(one) for one in ("10.1.2.3", "127.0.0.1", "::1")
    }


def test_keys_belong_to_their_certificates(made: Certificates) -> None:
    for file, key in (
        (made.server, made.server_key),
        (made.authority, made.authority_key),
    ):
        private = load_pem_private_key(key.read_bytes(), None)
        assert private.public_key() == certificate(file).public_key()


def test_a_node_has_a_pair_of_its_own(made: Certificates) -> None:
    publics = []
    for number in range(2):
        private = load_ssh_private_key(made.node_key(number).read_bytes(), None)
        public = load_ssh_public_key(made.node_public(number).read_bytes())
        assert private.public_key() == public
        publics.append(made.node_public(number).read_bytes().split()[1])
    assert made.nodes == len(set(publics)) == 2


def test_only_the_owner_can_read_keys(made: Certificates) -> None:
    keys = [made.authority_key, made.server_key, made.node_key(0), made.node_key(1)]
    assert {stat.S_IMODE(key.stat().st_mode) for key in keys} == {0o600}
    assert stat.S_IMODE((made.folder / "nodes").stat().st_mode) == 0o700


def test_what_is_there_is_not_replaced_unless_forced(tmp_path: Path) -> None:
    first = make_certificates(tmp_path, [], nodes=3)
    before = first.authority.read_bytes()
    with pytest.raises(CloveError, match=r"holds certificates already .*--force"):
        make_certificates(tmp_path, [], nodes=1)
    assert first.authority.read_bytes() == before
    assert make_certificates(tmp_path, [], nodes=1, force=True).nodes == 1
    assert first.authority.read_bytes() != before


def test_the_servers_certificate_is_renewed_and_nodes_keep_theirs(tmp_path: Path) -> None:
    made = make_certificates(tmp_path, ["fed.example.org", "10.1.2.3"], nodes=2, days=10)
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    old = certificate(made.server)
    words = ["flower", "certs", str(tmp_path), "--renew", "--nodes", "3", "--days", "20"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    certificate(made.server).verify_directly_issued_by(certificate(made.authority))
    assert certificate(made.server).not_valid_after_utc > old.not_valid_after_utc
    assert set(names(made)) == set(old.extensions.get_extension_for_class(type(names(made))).value)
    after = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    changed = {file for file, content in before.items() if after[file] != content}
    assert changed == {made.server, made.server_key}
    assert after.keys() - before.keys() == {made.node_key(2), made.node_public(2)}


def test_it_is_renewed_for_other_names_too(tmp_path: Path) -> None:
    made = make_certificates(tmp_path, ["old.example.org"], nodes=0)
    renew_certificates(tmp_path, ["new.example.org"], nodes=0)
    assert "new.example.org" in names(made).get_values_for_type(x509.DNSName)
    assert "old.example.org" not in names(made).get_values_for_type(x509.DNSName)


def test_nothing_is_renewed_without_the_authority_that_nodes_trust(tmp_path: Path) -> None:
    made = make_certificates(tmp_path / "a", [], nodes=0)
    other = make_certificates(tmp_path / "b", [], nodes=0)
    key, before = made.authority_key.read_bytes(), made.server.read_bytes()
    made.authority_key.write_bytes(other.authority_key.read_bytes())
    with pytest.raises(CloveError, match=r"ca.key is not the key of .*ca.crt"):
        renew_certificates(tmp_path / "a", [], nodes=0)
    made.authority_key.write_bytes(key[:100])
    with pytest.raises(CloveError, match=r"authority in .* cannot be read"):
        renew_certificates(tmp_path / "a", [], nodes=0)
    made.authority_key.unlink()
    with pytest.raises(CloveError, match=r"has no ca.key, .*put it there"):
        renew_certificates(tmp_path / "a", [], nodes=0)
    assert made.server.read_bytes() == before


def test_what_force_takes_away_is_said(tmp_path: Path) -> None:
    make_certificates(tmp_path, [], nodes=2)
    done = CliRunner().invoke(app, ["flower", "certs", str(tmp_path), "--force"])
    assert "Gone: the keys of 2 nodes. Every machine needs the new ca.crt." in done.output
    both = CliRunner().invoke(app, ["flower", "certs", str(tmp_path), "--force", "--renew"])
    assert both.exit_code == 1
    assert "--renew, which keeps keys" in both.output


def test_more_nodes_get_keys_and_nobody_loses_one(tmp_path: Path) -> None:
    made = with_keys(tmp_path, 2)
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    assert with_keys(tmp_path, 1).nodes == made.nodes == 2
    assert with_keys(tmp_path, 4).nodes == 4
    after = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    assert len(after) == len(before) + 4
    assert after.items() >= before.items()


def test_what_is_there_in_part_is_not_made_anew(tmp_path: Path) -> None:
    made = with_keys(tmp_path, 1)
    made.node_public(0).unlink()
    with pytest.raises(CloveError, match=r"has no node-0\.pub, but the other half"):
        with_keys(tmp_path, 2)
    made.authority_key.unlink()
    with pytest.raises(CloveError, match=r"has no ca.key, .*`clove flower certs .* --force`"):
        with_keys(tmp_path, 2)


@pytest.mark.parametrize("host", ["https://fed.org", "fed.org:8000", "", "-a", "a_b", "fed org"])
def test_what_is_no_host_is_refused(tmp_path: Path, host: str) -> None:
    with pytest.raises(CloveError, match="neither a host name nor an IP address"):
        make_certificates(tmp_path, [host], nodes=0)
    assert not list(tmp_path.iterdir())


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(address=st.ip_addresses().map(str))
def test_any_address_can_be_a_host(tmp_path: Path, address: str) -> None:
    made = make_certificates(tmp_path, [address], nodes=0, force=True)
    assert ipaddress.ip_address(address) in names(made).get_values_for_type(x509.IPAddress)


@pytest.mark.parametrize(("nodes", "days"), [(-1, 365), (10_001, 365), (1, 0), (1, 9999)])
def test_numbers_out_of_range_are_refused(tmp_path: Path, nodes: int, days: int) -> None:
    with pytest.raises(CloveError, match="must be from"):
        make_certificates(tmp_path, [], nodes, days)


def test_the_command_says_what_goes_where(tmp_path: Path) -> None:
    words = ["flower", "certs", str(tmp_path / "c"), "--hosts", "a.example, b.example"]
    done = CliRunner().invoke(app, [*words, "--nodes", "2"])
    assert done.exit_code == 0, done.output
    for word in ("ca.crt", "server.key", "node-0.pub", "to the server, alone", "ca.key"):
        assert word in done.output
    again = CliRunner().invoke(app, words)
    assert again.exit_code == 1
    assert "--force" in again.output
