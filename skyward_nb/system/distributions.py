"""Which package brings a module."""

from __future__ import annotations

import re
import sys
from importlib.machinery import PathFinder

_LACKED = re.compile(r"^No module named '(\w+)'")
_KNOWN = {
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dotenv": "python-dotenv",
    "hydra": "hydra-core",
    "PIL": "pillow",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
"""What brings modules whose name is another one."""


def distribution_of(module: str) -> str:
    """The name to install a module by: what is known to bring it, what brings it here, else its own."""
    top = module.partition(".")[0]
    if top in _KNOWN or top in sys.builtin_module_names or PathFinder.find_spec(top) is None:
        return _KNOWN.get(top, top)
    import importlib.metadata  # with all of `email`: programs start sooner without it

    found = importlib.metadata.packages_distributions().get(top)  # takes seconds
    return found[0] if found else top


def lacked_module(message: str) -> str:
    """The module whose package is lacking, of the message of a ModuleNotFoundError; "" where it is another one's part."""
    found = _LACKED.match(message)
    return found[1] if found else ""
