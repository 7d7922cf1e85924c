"""The folder and umask of a login, which ranks have on machines reached by SSH.

The agent there works in the root folder, under a umask that lets no other user in.
"""

from __future__ import annotations

import contextlib
import os

FOLDER = "SKYWARD_LOGIN_FOLDER"
UMASK = "SKYWARD_LOGIN_UMASK"
"""The variables of the agent that ranks do not see."""


def begin_as_logged_in() -> None:
    """Enter the folder of the login, if possible, and set its umask; no change without a login."""
    folder, umask = (os.environ.pop(name, "") for name in (FOLDER, UMASK))
    if folder:
        with contextlib.suppress(OSError):
            os.chdir(folder)
    if umask:
        os.umask(int(umask, 8))
