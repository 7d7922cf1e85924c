"""tqdm's private name: the stream below its wrappers.

Where it is missing, AttributeError or KeyError where a bar is made.

Seen with tqdm 4.70.1.
"""

from __future__ import annotations

import sys
from typing import Any


def unwrapped(stream: Any) -> Any:
    """The stream below tqdm's own wrappers, which people put around `sys.stdout`."""
    wrapper = sys.modules["tqdm.utils"].ObjectWrapper
    while isinstance(stream, wrapper):
        stream = vars(stream)["_wrapped"]
    return stream
