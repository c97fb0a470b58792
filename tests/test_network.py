"""Which addresses belong to a list of networks, and which texts are no network."""

import pytest

from portico.network import TrustedNetworks, network_of, parse_network

NETWORKS = ("10.0.0.5", "192.168.0.0/16", "2001:db8::/32", "::ffff:198.51.100.0/120")


@pytest.mark.parametrize(
    "address",
    [
        "10.0.0.5",
        "::ffff:10.0.0.5",
        "192.168.255.255",
        "2001:db8::7",
        "2001:DB8:0:0::7",
        "2001:db8::7%eth0",
        "198.51.100.9",
    ],
)
def test_an_address_is_found_in_whatever_form_it_is_written(address: str) -> None:
    assert address in TrustedNetworks(NETWORKS)


@pytest.mark.parametrize("address", ["10.0.0.6", "2001:db9::7", "::1", "", "localhost", "10.0.0.5:80", "10.0.0.0/8"])
def test_other_addresses_and_texts_are_not_trusted(address: str) -> None:
    assert address not in TrustedNetworks(NETWORKS)
    assert "10.0.0.5" not in TrustedNetworks(())


@pytest.mark.parametrize("text", ["10.0.0.1/8", "10.0.0.0/33", "2001:db8::1/32", "localhost", "", "*", "10"])
def test_what_is_no_network_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"does not appear|host bits"):
        parse_network(text)


def test_a_subscriber_of_ipv6_counts_as_one_address() -> None:
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:2%eth0") != network_of("2001:db8:0:1::1")
    assert network_of("::ffff:192.0.2.1") == network_of("192.0.2.1") != network_of("192.0.2.2")
