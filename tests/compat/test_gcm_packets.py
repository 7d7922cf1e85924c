"""Packets that are sealed here are asyncssh's own: two of its connections in one process, no sshd.

A changed order of nonces or another layout would give the key away, or end the line, and be silent.
"""

import asyncio
import os
import socket

import asyncssh
import pytest
from compat.installed_code import find

from skyward_nb.compat.asyncssh_private import gcm_sealer
from skyward_nb.providers.ssh.stream import ChannelSession

_BULK, _ROUNDS = 50_000, 12


class _Echo(asyncssh.SSHUNIXSession):
    """The other end: says what it hears, by asyncssh's own means."""

    def connection_made(self, chan):
        self._channel = chan

    def data_received(self, data, datatype):
        self._channel.write(data)


class _Server(asyncssh.SSHServer):
    def begin_auth(self, username):
        return False

    def unix_connection_requested(self, dest_path):
        return _Echo()


class _Heard(ChannelSession):
    def __init__(self, sealer):
        super().__init__(sealer)
        self.parts: list[bytes] = []
        self.changed = asyncio.Event()

    def data_received(self, data, datatype):
        self.parts.append(data)
        self.changed.set()


async def _connected(cipher, **more):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    both = {"encryption_algs": [cipher], "compression_algs": None, "config": None, **more}
    key = asyncssh.generate_private_key("ssh-ed25519")
    return await asyncio.gather(
        asyncssh.run_client(ours, known_hosts=None, username="ann", client_keys=None, **both),
        asyncssh.run_server(theirs, server_factory=_Server, server_host_keys=[key], **both),
    )


async def _talk(near):
    """Bulk sealed here and words sealed by asyncssh in turn; how many bytes were sealed here."""
    heard = _Heard(gcm_sealer(near))
    channel, _ = await near.create_unix_connection(lambda: heard, "/somewhere", encoding=None)
    said, sealed = b"", 0
    for number in range(_ROUNDS):
        bulk, word = os.urandom(_BULK), b"word %d" % number
        sent = heard._sealed(memoryview(bulk))
        sealed += sent
        channel.write(bulk[sent:] + word)
        said += bulk + word
        while sum(map(len, heard.parts)) < len(said):
            heard.changed.clear()
            await asyncio.wait_for(heard.changed.wait(), 30)
    assert b"".join(heard.parts) == said
    return sealed


async def _closed(*connections):
    for each in connections:
        each.abort()
        await each.wait_closed()


def _counters(near, far):
    """Of what goes from one end to the other: its sequence number there and here, and the next nonce."""
    sent = near._send_seq, near._send_encryption._cipher._iv
    return sent, (far._recv_seq, far._recv_encryption._cipher._iv)


@pytest.mark.parametrize("cipher", ["aes128-gcm@openssh.com", "aes256-gcm@openssh.com"])
def test_they_and_asyncssh_understand_one_another(cipher):
    async def main():
        near, far = await _connected(cipher)
        try:
            sealed = await _talk(near)
            for sent, received in (_counters(near, far), _counters(far, near)):
                assert sent == received, "nonces or numbers of packets differ at the two ends"
            return sealed
        finally:
            await _closed(near, far)

    sealed = asyncio.run(main())
    what = f"asyncssh {asyncssh.__version__}: packets are no longer as compat/asyncssh_private.py knows them"
    assert sealed == _ROUNDS * _BULK, what


def test_while_keys_change_in_the_middle_of_what_comes(monkeypatch):
    """Both ends begin to, of which neither knows when the other one does."""

    async def main():
        near, far = await _connected("aes128-gcm@openssh.com", rekey_bytes=100_000)
        keys = []
        newkeys = near.send_newkeys
        monkeypatch.setattr(near, "send_newkeys", lambda *of: (keys.append(of), newkeys(*of)))
        try:
            return await _talk(near), len(keys)
        finally:
            await _closed(near, far)

    sealed, changed = asyncio.run(main())
    assert sealed
    assert changed >= 5


def test_with_another_cipher_asyncssh_does_it():
    async def main():
        near, far = await _connected("chacha20-poly1305@openssh.com")
        try:
            return await _talk(near)
        finally:
            await _closed(near, far)

    assert asyncio.run(main()) == 0


def test_a_nonce_is_used_once():
    """asyncssh counts the last eight bytes up by one, after each packet, whichever way it goes."""
    from asyncssh.encryption import get_encryption

    made = get_encryption(b"aes128-gcm@openssh.com", bytes(16), b"\1" * 12)
    before = made._cipher._iv
    made._cipher._update_iv()
    after = made._cipher._iv
    assert after[:4] == before[:4]
    assert int.from_bytes(after[4:], "big") == int.from_bytes(before[4:], "big") + 1
    made.encrypt_packet(0, b"\0\0\0\x10", bytes(16))
    assert int.from_bytes(made._cipher._iv[4:], "big") == int.from_bytes(before[4:], "big") + 2


@pytest.mark.parametrize("name", ["pause_writing", "resume_writing"])
def test_asyncssh_does_nothing_itself_when_its_transport_is_full(name):
    """Else `heed_transport` would take that away."""
    found = find("asyncssh.connection", f"SSHConnection.{name}")
    assert len(found.body) == 1, f"asyncssh {asyncssh.__version__}: {name} does something now"
