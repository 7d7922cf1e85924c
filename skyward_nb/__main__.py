"""`python -m skyward_nb`: the same as `skyward-nb`."""

import sys

from skyward_nb.cli import main

sys.exit(main())
