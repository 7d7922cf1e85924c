"""What ranks have of a login: on machines that one logs in to, its folder and its umask.

All else of ours there lives in the root folder, under a umask that lets nobody else in.
"""

from __future__ import annotations

import contextlib
import os

FOLDER = "SKYWARD_LOGIN_FOLDER"
UMASK = "SKYWARD_LOGIN_UMASK"
"""The variables that tell the agent, and that ranks have no more."""


def begin_as_logged_in() -> None:
    """Go on in the folder of the login, where it can be entered, under its umask; elsewhere as before."""
    folder, umask = (os.environ.pop(name, "") for name in (FOLDER, UMASK))
    if folder:
        with contextlib.suppress(OSError):
            os.chdir(folder)
    if umask:
        os.umask(int(umask, 8))
