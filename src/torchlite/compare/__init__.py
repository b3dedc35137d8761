"""Comparing runs by their records: seeds folded, differences tested. Reads JSON only; knows neither Hydra nor torch.

records.py finds and reads runs; columns.py says what differs between them; groups.py folds seeds; statistics.py has the
intervals and the test; report.py joins these; table.py, figure.py and page.py show it; difference.py sets two runs side by
side.
"""
