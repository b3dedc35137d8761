"""Which settings are better, and by how much more than chance: `python compare.py --help` shows how."""

import sys

from torchlite import stopping

with stopping.loading():
    from torchlite.compare.command import main

if __name__ == "__main__":
    sys.exit(stopping.ended(lambda: main(sys.argv[1:])))
