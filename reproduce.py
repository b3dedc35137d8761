"""Repeat a run from its record and say whether it is the same: `python reproduce.py outputs/NAME/RUN`, or `--help`."""

import sys

from torchlite import stopping

with stopping.loading():
    from torchlite.reproduce.command import main

if __name__ == "__main__":
    sys.exit(stopping.ended(main))
