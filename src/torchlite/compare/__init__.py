"""Comparing runs by their records: seeds folded, differences tested. Reads JSON only; knows neither Hydra nor torch.

finding.py, records.py     runs found and read
columns.py, groups.py      what differs between them; seeds folded
statistics.py, report.py   intervals and tests; which row is best, and what has to be said about it
table.py, figure.py, curves.py, page.py   the report shown
difference.py              two runs side by side
"""
