"""Repeat a run from its record and say whether it is the same: `python reproduce.py outputs/NAME/RUN`, or `--help`."""

import sys

from torchlite.reproduce.command import main

if __name__ == "__main__":
    sys.exit(main())
