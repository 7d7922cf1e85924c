"""The folder of a rented machine's own fast disk. Pure."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path("/mnt/skyward/scratch")
"""Whoever logs in owns it, where the machine has such a disk."""
