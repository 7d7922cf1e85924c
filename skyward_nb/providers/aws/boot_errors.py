"""What is said of a machine that ended while it booted, with what it wrote last."""

from __future__ import annotations

from skyward_nb.providers.aws.api_errors import AWSError
from skyward_nb.providers.aws.client import AWSClient
from skyward_nb.words.errors import StartError

POWERED_OFF = "Client.InstanceInitiatedShutdown"
"""The reason of a state, where the machine has ended itself.

Source: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_StateReason.html.
"""
_LAST_WORDS = 2000


async def boot_failed(
    cloud: AWSClient, pool: str, region: str, instance: str, user: str
) -> StartError:
    """The error of a `pool` that a machine ended before anybody could log in to it as `user`."""
    why = (
        f"{instance} ended before it could be logged in to: its boot script failed. If its ami= has "
        f"no user {user!r}, name the user it has with user="
    )
    return StartError(pool, why, await _console(cloud, region, instance))


async def _console(cloud: AWSClient, region: str, instance: str) -> str:
    """The end of what a machine wrote while it booted; "" where that cannot be had."""
    try:
        said = await cloud.ask("GetConsoleOutput", region, InstanceId=instance)
    except AWSError:
        return ""
    return str(said.get("Output") or "")[-_LAST_WORDS:].strip()
