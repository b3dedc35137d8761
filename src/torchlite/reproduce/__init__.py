"""Repeating a run from its record, with a verdict; and the team's ledger of runs that were repeated. Start at `command`."""
