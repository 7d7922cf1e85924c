"""Calls that EC2 throttles are sent again at once: boto waits up to 20 seconds before each."""

from botocore.retries import standard

PAUSE = 0.01


def at_once() -> None:
    """Have this process wait for nothing, from now on."""
    standard.ExponentialBackoff.delay_amount = lambda _self, _context: PAUSE
