"""Certificates that a machine trusts beside its system's: an index of packages behind a proxy that reads TLS."""

from __future__ import annotations

import asyncio
import datetime
import functools
import http.server
import ipaddress
import shutil
import ssl
import subprocess
import tarfile
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from bootstrap.homes import UV, facts_of, shell_at
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from providers.wheels import wheel

from skyward_nb.bootstrap import uv
from skyward_nb.bootstrap.certificates import trusting
from skyward_nb.bootstrap.setup_errors import is_untrusted, untrusted
from skyward_nb.words.errors import HostNotReady


def authority(folder):
    """The files of an authority's certificate, and of one for 127.0.0.1 with its key."""

    def name(text):
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    def signed(text, key, by, extension):
        now = datetime.datetime.now(datetime.UTC)
        made = x509.CertificateBuilder(
            name("the company"), name(text), key.public_key(), x509.random_serial_number(),
            now - datetime.timedelta(days=1), now + datetime.timedelta(days=1),
        )  # fmt: skip
        return made.add_extension(extension, critical=False).sign(by, hashes.SHA256())

    own, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    pem = serialization.Encoding.PEM
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ca, proxy = folder / "ca.pem", folder / "proxy.pem"
    basic = x509.BasicConstraints(ca=True, path_length=None)
    ca.write_bytes(signed("the company", own, own, basic).public_bytes(pem))
    leaf = signed("127.0.0.1", key, own, here).public_bytes(pem)
    proxy.write_bytes(leaf + key.private_bytes(pem, *plain))
    return ca, proxy


@pytest.fixture
def index(tmp_path):
    """An index by HTTPS, and the certificate of its authority, which nobody knows."""
    ca, proxy = authority(tmp_path)
    folder = tmp_path / "simple" / "sky-t-one"
    folder.parent.mkdir()
    whole = wheel(folder, "sky-t-one", "1.0")
    (folder / "index.html").write_text(f'<a href="{whole.name}">{whole.name}</a>')

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_words: object) -> None:
            """Say nothing."""

    handler = functools.partial(Handler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(proxy)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"https://127.0.0.1:{server.server_port}/simple", ca
        server.shutdown()
        thread.join()


def test_uv_there_trusts_a_file_of_this_machine(index, tmp_path):
    address, ca = index
    shell = shell_at(tmp_path / "home")
    facts = facts_of(shell)
    ask = (
        f"{UV.path} pip install --no-cache --target {tmp_path}/got --index-url {address} sky-t-one"
    )

    def asked(variables):
        given = "".join(f"export {name}={value}\n" for name, value in variables.items())
        return asyncio.run(shell.run(given + ask))

    refused = asked(asyncio.run(trusting(shell, facts, None)))
    assert refused.code and is_untrusted(refused.err)
    assert "ca=FILE" in untrusted(address, "its environment could not be made")
    variables = asyncio.run(trusting(shell, facts, str(ca)))
    assert {*variables} == {"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT"}
    made = asked(variables)
    assert made.code == 0, made.err
    (file,) = {*variables.values()}
    assert file.startswith(f"{facts.cache}/ca/")
    # It is beside those of the system, which programs would not look at any more.
    system = ssl.get_default_verify_paths().cafile
    context = ssl.create_default_context(cafile=file)
    least = len(ssl.create_default_context(cafile=system).get_ca_certs()) if system else 0
    assert len(context.get_ca_certs()) > least
    assert asyncio.run(trusting(shell, facts, str(ca))) == variables
    found = subprocess.run(
        ["ls", "-A", f"{facts.cache}/ca"], capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == [file.rpartition("/")[2]]


def test_a_file_that_is_gone_is_named(tmp_path):
    shell = shell_at(tmp_path / "home")
    facts = facts_of(shell)
    with pytest.raises(HostNotReady, match=r"ca=/none\.pem cannot be read here: No such file"):
        asyncio.run(trusting(shell, facts, "/none.pem"))
    assert asyncio.run(trusting(shell, replace(facts, lacks=("cache",)), "/none.pem")) == {}


def test_half_a_file_is_not_put_in_place(tmp_path):
    """As of a line that is cut while the certificates are sent: their end is read, and the script goes on."""
    shell = shell_at(tmp_path / "home")
    facts = facts_of(shell)
    ca, _ = authority(tmp_path)

    class Cut:
        name = shell.name

        async def run(self, script, *, data=b"", **given):
            return await shell.run(script, data=data[:-9], **given)

    place = tmp_path / "home/.cache/skyward_nb/ca"
    with pytest.raises(HostNotReady, match="could not be copied there"):
        asyncio.run(trusting(Cut(), facts, str(ca)))
    assert [*place.iterdir()] == []
    asyncio.run(trusting(shell, facts, str(ca)))
    assert len([*place.iterdir()]) == 1


@pytest.mark.parametrize("fetches", ["curl", "wget"])
def test_uv_is_fetched_with_them(index, tmp_path, monkeypatch, fetches):
    """By the one of these programs that a machine has."""
    if shutil.which(fetches) is None:
        pytest.skip(f"there is no {fetches}")
    address, ca = index
    binary = tmp_path / "uv-of-there" / "uv"
    binary.parent.mkdir()
    binary.write_text("#!/bin/sh\necho uv 0.0\n")
    binary.chmod(0o755)
    with tarfile.open(tmp_path / "uv.tar.gz", "w:gz") as packed:
        packed.add(binary.parent, "uv-of-there")
    tools = tmp_path / "bin"
    tools.mkdir()
    there = {each.name: each for folder in ("/bin", "/usr/bin") for each in Path(folder).iterdir()}
    for name in there.keys() - ({"curl", "wget"} - {fetches}):
        (tools / name).symlink_to(there[name])
    monkeypatch.setattr(uv, "release", lambda _: address.replace("simple", "uv.tar.gz"))
    shell = shell_at(tmp_path / "home", PATH=str(tools))
    facts = facts_of(shell, libc="musl 1.2.5", uvs=(), pythons=())
    with pytest.raises(HostNotReady, match=r"certificate of 127.0.0.1.*ca=FILE"):
        asyncio.run(uv.provide(shell, facts, {}, lambda _: None))
    variables = asyncio.run(trusting(shell, facts, str(ca)))
    path = asyncio.run(uv.provide(shell, facts, variables, lambda _: None))
    assert Path(path).read_bytes() == binary.read_bytes()
