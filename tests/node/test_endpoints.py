"""Machines meet: this one listens at its addresses, and another one knocks."""

import ipaddress

from skyward_nb.node.endpoints import Endpoints, probe

WORD = b"0123456789abcdef"


def test_who_knows_the_word_reaches_every_door():
    endpoints = Endpoints(7, WORD, loopback=True)
    try:
        assert [endpoint.number for endpoint in endpoints.there] == list(
            range(7, 7 + len(endpoints.there))
        )
        assert {endpoint.interface for endpoint in endpoints.there} == {"lo"}
        reached = probe(endpoints.there, WORD)
        assert [(each.to, each.trouble) for each in reached] == [
            (endpoint.number, "") for endpoint in endpoints.there
        ]
        strangers = probe(endpoints.there, b"fedcba9876543210")
        assert all(each.trouble for each in strangers)
    finally:
        endpoints.close()
    assert all(each.trouble for each in probe(endpoints.there, WORD))


def test_no_door_is_on_a_public_address(monkeypatch):
    import psutil

    def address(text):
        family = 10 if ":" in text else 2
        return type("Address", (), {"family": family, "address": text})

    shown = {
        "lo": [address("127.0.0.1"), address("::1")],
        "wan": [address("8.8.8.8"), address("2600::1"), address("fe80::1%wan")],
    }
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: shown)
    monkeypatch.setattr(psutil, "net_if_stats", dict)
    for loopback in (False, True):
        endpoints = Endpoints(0, WORD, loopback=loopback)
        try:
            found = [ipaddress.ip_address(endpoint.address) for endpoint in endpoints.there]
        finally:
            endpoints.close()
        assert bool(found) == loopback and all(each.is_loopback for each in found)
