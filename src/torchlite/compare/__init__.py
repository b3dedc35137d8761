"""Comparing runs by their records: seeds folded, differences tested. Reads JSON only; knows neither Hydra nor torch.

finding.py, records.py, settings.py   runs found and read; what makes two runs one setting, and a record an edited one
columns.py, groups.py                 what differs between them; seeds folded
statistics.py, report.py, doubts.py   intervals and tests; which row is best; what makes that less sure
table.py, figure.py, curves.py, page.py (page.html, page.css, page.js, charts.js)   the report shown
difference.py                         two runs side by side
"""
