"""Which settings are better, and by how much more than chance: `python compare.py --help` shows how."""

import sys

from torchlite.compare.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
