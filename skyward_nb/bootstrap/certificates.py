"""Certificates of this machine that another one trusts, too, as where a proxy reads TLS."""

from __future__ import annotations

import asyncio
import hashlib
import shlex
from pathlib import Path

from skyward_nb.bootstrap.machine_facts import MachineFacts
from skyward_nb.bootstrap.remote_shell import Shell
from skyward_nb.bootstrap.setup_errors import failure
from skyward_nb.words.errors import HostNotReady

_LIMIT = 60.0
_NAMED_BY = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT")
"""The variables by which programs find certificates: OpenSSL and uv, requests, curl, pip."""

_PLACE = r"""
umask 077
folder=${final%/*}
mkdir -p "$folder" && new=$(mktemp "$folder/.new-XXXXXX") || exit 3
trap 'rm -f "$new"' EXIT
for each in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/ca-bundle.pem /etc/ssl/cert.pem; do
  if [ -r "$each" ]; then cat "$each"; echo; break; fi
done >"$new" && whole=$(($(wc -c <"$new") + size)) && cat >>"$new" || exit 3
[ "$(wc -c <"$new")" -eq "$whole" ] || { echo "the certificates came in part" >&2; exit 3; }
mv "$new" "$final" || exit 3
"""
"""Joins the certificates on stdin to those of the system: most programs read one file.

Of a line that is cut while they are sent, `cat` reads the end: what came then is no file.
"""


async def trusting(shell: Shell, facts: MachineFacts, ca: str | None) -> dict[str, str]:
    """The variables by which a machine trusts the certificates of a file here, too; none without one.

    Raises `HostNotReady`, and `ShellGone`.
    """
    if ca is None or {"cache", "privacy"} & {*facts.lacks}:  # told where an environment is made
        return {}
    try:
        data = await asyncio.to_thread(Path(ca).read_bytes)
    except OSError as error:
        raise HostNotReady(shell.name, f"ca={ca} cannot be read here: {error.strerror}") from error
    final = f"{facts.cache}/ca/{hashlib.sha256(data).hexdigest()[:16]}.pem"
    script = f"final={shlex.quote(final)} size={len(data)}\n{_PLACE}"
    try:
        ran = await shell.run(script, data=data, limit=_LIMIT)
    except TimeoutError:
        why = f"the certificates of ca= could not be copied to {facts.cache} in {_LIMIT:.0f} s"
        raise HostNotReady(shell.name, why) from None
    if ran.code:
        raise await failure(shell, facts, ran, "the certificates of ca= could not be copied there")
    return dict.fromkeys(_NAMED_BY, final)
