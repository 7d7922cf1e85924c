"""What providers of machines elsewhere have in common.

Each imports what reaches its machines when it is first used: a notebook that has no such pool never needs it.
"""

from __future__ import annotations

from skyward_nb.words.spec import PoolSpec


class FarProvider:
    """A source of machines that have none of this machine's files, and a Python of the image's version."""

    shares_files: bool = False

    def check(self, spec: PoolSpec) -> None:
        """Raise `OptionError` for an image that no machine can have."""
        from skyward_nb.bootstrap.requirements import check_minor

        check_minor(spec.image)
