"""Measurements side by side with plainer code; never run by the tests. `make bench` runs all."""

import os

os.environ.setdefault("GOMP_SPINCOUNT", "3000")  # as train.py does, before torch is loaded
