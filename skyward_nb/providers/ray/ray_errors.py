"""Ray's refusals in words: what is wrong, and what to type next. Pure."""

from __future__ import annotations

import re

from skyward_nb.providers.far.take_down import EngineFault
from skyward_nb.providers.ray.messages import HelperFailed
from skyward_nb.words.provider_access import AUTO_ADDRESS, RayAccess


class RaySilent(EngineFault):
    """Ray, or the helper that speaks to it, gave no answer; the text says why and what to do."""


_VERSIONS = re.compile(
    r"Ray: (?P<ray>[\w.]+).*?Python: (?P<python>[\d.]+).*?Ray: (?P<own_ray>[\w.]+).*?Python: (?P<own_python>[\d.]+)",
    re.DOTALL,
)
_INITIALIZATION = "Initialization failure from server"
"""What Ray's client says where the head has no process for it; a trace of the head's follows."""


def spell_failure(failed: HelperFailed, access: RayAccess) -> str:
    """Why the helper is no client of the cluster, and what to do."""
    where = access.python or "this notebook's Python"
    text = " ".join(failed.text.split())
    if failed.error == "ModuleNotFoundError" and "'ray'" in failed.text:
        return (
            f"{where} has no Ray: `pip install 'skyward-nb[ray]'`, in the release of the cluster (ray==2.60.0, for "
            "example); or name another interpreter that has it, sky.Ray(python=...)"
        )
    if found := _VERSIONS.search(failed.text):
        return (
            f"the cluster runs Ray {found['ray']} and Python {found['python']}, and {where} has Ray {found['own_ray']} and "
            f"Python {found['own_python']}: both must be the same. Make an environment with `uv venv --python "
            f"{found['python']} ray-env && uv pip install --python ray-env 'ray[client]=={found['ray']}'`, and name it: "
            "sky.Ray(python='ray-env/bin/python'). Ranks keep the notebook's own Python."
        )
    if (
        "AuthToken" in failed.text
        or "Unauthenticated" in failed.text
        or failed.error == "AuthenticationError"
    ):
        return (
            f"the cluster at address={access.address} takes only clients with its token: set RAY_AUTH_MODE=token and "
            "RAY_AUTH_TOKEN (or RAY_AUTH_TOKEN_PATH) in this notebook's environment"
        )
    if access.address == AUTO_ADDRESS and failed.error == "ConnectionError":
        return (
            "no Ray runs on this machine: name the cluster, address=ray://HOST:10001, or start the notebook on one of "
            "its nodes"
        )
    if _INITIALIZATION in failed.text:
        return (
            f"Ray's client server at address={access.address} answers, and its process for this client did not come up: "
            f"{_cause(failed.text)}. Its logs are ray_client_server*.err below /tmp/ray/session_latest/logs of the head "
            "node. Try again; where the head is so busy that it needs more than 30 s, start Ray there with "
            "RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S=120. A notebook on a node of the cluster needs no such process "
            "(address=auto)"
        )
    if failed.error in ("ConnectionError", "RpcError", "TimeoutError", "ConnectionAbortedError"):
        return f"no Ray answers at address={access.address}: {_short(text)}"
    return f"{failed.error}: {_short(text)}"


def _cause(text: str) -> str:
    """The last line of a trace, which has its exception; of that the first sentence."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return _short(re.split(r"(?<=[!.]) ", lines[-1])[0].rstrip("!."))


def _short(text: str) -> str:
    return text if len(text) <= 300 else f"{text[:300]}…"
