"""Sweeps: every job composed and checked before the first one starts, each in the directory its identity names."""
