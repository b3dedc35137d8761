"""Measurements side by side with plainer code; never run by the tests. `make bench` runs all."""
