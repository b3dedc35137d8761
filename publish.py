"""Copy a run or a sweep into the team's ledger: `python publish.py RUN NAME --question "…"`, or `--help`."""

import sys

from torchlite import stopping

with stopping.loading():
    from torchlite.reproduce.publish import main

if __name__ == "__main__":
    sys.exit(stopping.ended(main))
