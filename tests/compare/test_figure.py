"""The figure: one column wide, letters of a readable size, the drawn numbers those of the table."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image
from scipy import stats

from tests.compare import made
from torchlite.compare import curves, figure, page
from torchlite.compare.report import Asked, Report, report
from torchlite.scores import with_unit


def test_png_and_pdf_are_one_column_wide(tmp_path: Path) -> None:
    made.sweep(tmp_path / "s")
    found = report([str(tmp_path / "s")], Asked(baseline="optimizer=sgd optimizer.lr=0.1"))
    for name in ("f.png", "f.pdf", "g.png", "g.pdf"):
        assert figure.draw(found, tmp_path / name) == []
    with Image.open(tmp_path / "f.png") as image:
        assert image.width == round(figure.WIDTH * 300) and image.height > 600
        assert len(image.convert("RGB").getcolors(1 << 20)) > 50
    for suffix in ("png", "pdf"):
        assert (tmp_path / f"f.{suffix}").read_bytes() == (tmp_path / f"g.{suffix}").read_bytes()
    (width,) = re.findall(rb"/MediaBox \[ 0 0 ([\d.]+) ", (tmp_path / "f.pdf").read_bytes())
    assert float(width) == pytest.approx(figure.WIDTH * 72, abs=0.5)


def test_what_does_not_fit_is_said(tmp_path: Path) -> None:
    for index in range(25):
        path = made.run(
            tmp_path / "s" / str(index), 0.9 - index / 100, optimizer__lr=0.1 + index, typed=("optimizer.lr=1",)
        )
        (path / "metrics.jsonl").unlink()
    found = report([str(tmp_path / "s")], Asked())
    notes = figure.draw(found, tmp_path / "f.png")
    without = "No metrics.jsonl has val/acc1 against updates, so f.png shows no curves."
    assert notes == ["f.png shows the first 20 of 25 rows.", without]


def test_names_that_mean_something_to_formulas_are_drawn_as_text(tmp_path: Path) -> None:
    made.run(tmp_path / "s" / "a", model__act="$\\frac{x$ <b> %s 日本")
    made.run(tmp_path / "s" / "b", model__act="$")
    figure.draw(report([str(tmp_path / "s")], Asked()), tmp_path / "f.png")
    assert (tmp_path / "f.png").stat().st_size > 1000


def test_the_band_is_the_t_interval_at_each_update(tmp_path: Path) -> None:
    read = [curves.read(made.run(tmp_path / f"{seed}", 0.9 + seed / 50, seed=seed))["val/acc1"] for seed in range(4)]
    band = curves.band(read, 100)
    assert band is not None and band.low is not None and band.high is not None
    values = np.stack([curve.values for curve in read])
    low, high = stats.t.interval(0.95, 3, loc=values.mean(0), scale=stats.sem(values))
    assert band.mean.updates.tolist() == [10, 20, 30] and band.mean.epochs.tolist() == [1, 2, 3]
    assert band.mean.seconds.tolist() == pytest.approx([0.625, 1.25, 1.875])
    assert np.allclose(band.low, low) and np.allclose(band.high, high)


def test_a_band_of_pooled_settings_counts_seeds(tmp_path: Path) -> None:
    """As the table does: a seed's runs are averaged first. Twelve runs of three seeds are no twelve draws."""
    levels = [(lr, seed) for lr in (0.1, 0.2, 0.3, 0.4) for seed in range(3)]
    for lr, seed in levels:
        made.run(
            tmp_path / f"{lr}-{seed}", 0.5 + lr + seed / 50, seed=seed, optimizer__lr=lr, typed=("optimizer.lr=1",)
        )
        made.run(tmp_path / f"b{lr}-{seed}", 0.4 + lr, "adamw", seed, optimizer__lr=lr, typed=("optimizer.lr=1",))
    found = report([str(tmp_path)], Asked(by=["optimizer"]))
    group, score = found.groups[0], found.groups[0].mean("val/acc1")
    band = figure._band(group, "val/acc1")
    assert band is not None and band.low is not None and band.high is not None and score is not None
    means = np.array([0.75 + seed / 50 for seed in range(3)])
    low, high = stats.t.interval(0.95, 2, loc=means.mean(), scale=stats.sem(means))
    assert (band.n, score.n) == (3, 3)
    assert (band.low[-1], band.high[-1]) == pytest.approx((low, high))
    assert (score.low, score.high) == pytest.approx((low, high))
    packed = page.contents(found)["curves"]["val/acc1"]
    assert [curve[6] for curve in packed["groups"]] == [3, 3] and {curve[6] for curve in packed["runs"]} == {1}
    assert packed["groups"][0][4][-1] == pytest.approx(low, rel=1e-5)
    assert drawn(found).get_xlabel() == "applied updates\nmean and 95 % interval over 3 seeds"


def drawn(found: Report):
    """The panel of curves."""
    panel = Figure().subplots()
    bands = {group: band for group in found.groups if (band := figure._band(group, found.metric))}
    colors = dict(zip(bands, zip(figure.COLORS, figure.DASHES, strict=True), strict=False))
    figure._draw_curves(panel, bands, colors, found.metric, "updates")
    return panel


def test_curves_are_told_apart_without_colours_and_fill_the_panel(tmp_path: Path) -> None:
    """All six differ in their dashes; the late half of all bands takes up most of the height."""
    made.sweep(tmp_path, num_seeds=3)
    found = report([str(tmp_path)], Asked(where=["optimizer.lr!=0.01"]))
    panel = drawn(report([str(tmp_path)], Asked()))
    styles = [(line._dash_pattern, line.get_color()) for line in panel.get_lines()]  # type: ignore[attr-defined]
    assert len(styles) == 6 and len({str(dash) for dash, _ in styles}) == len({color for _, color in styles}) == 6
    low, high = drawn(found).get_ylim()
    late = [side[1:] for group in found.groups if (b := figure._band(group, "val/acc1")) for side in (b.low, b.high)]
    assert (np.max(late) - np.min(late)) / (high - low) > 0.85


def test_axes_have_their_unit_once() -> None:
    units = {
        "seconds": "seconds",
        "val/acc1": "val/acc1 (share of images)",
        "train/loss": "train/loss (mean per image)",
    }
    assert {name: with_unit(name) for name in units} == units
    assert with_unit("val/accumulated") == "val/accumulated"


def test_curves_that_end_early_are_folded_where_all_have_values(tmp_path: Path) -> None:
    one, other = (curves.read(made.run(tmp_path / name))["update/loss"] for name in "ab")
    short = curves.Curve(*(array[:3] for array in (other.updates, other.epochs, other.seconds, other.values)))
    band = curves.band([one, short], 100)
    assert band is not None and band.mean.updates[-1] == other.updates[2]
    late = curves.Curve(one.updates + 100, one.epochs, one.seconds, one.values)
    assert curves.band([one, late], 100) is None
    many = curves.band([one], 3)
    assert (
        many is not None and many.mean.updates[[0, -1]].tolist() == one.updates[[0, -1]].tolist() and many.low is None
    )
    assert len(many.mean.updates) == 3


def test_a_published_record_has_curves_without_durations(tmp_path: Path) -> None:
    directory = made.run(tmp_path / "s" / "a")
    kept = []
    for line in curves.lines(directory):
        line.pop("seconds/epoch", None)
        kept += [] if any(name.startswith("update/") for name in line) else [json.dumps(line)]
    (directory / "metrics.jsonl").write_text("\n".join(kept))
    curve = curves.read(directory)["val/acc1"]
    assert curve.epochs.tolist() == [1, 2, 3] and np.isnan(curve.seconds).all()
    found = report([str(tmp_path / "s")], Asked())
    json.dumps(page.contents(found), allow_nan=False)
    assert figure.draw(found, tmp_path / "f.png") == []
    assert figure.draw(found, tmp_path / "f.png", "seconds")[0].startswith(
        "No metrics.jsonl has val/acc1 against seconds"
    )


def test_broken_lines_are_skipped(tmp_path: Path) -> None:
    path = made.run(tmp_path / "a") / "metrics.jsonl"
    huge = "1" * 400  # more than a float holds
    broken = (f'{{"update": 32, "val/acc1": {huge}}}', f'{{"update": {huge}, "val/acc1": 1}}')
    broken += ('{"update": 31, "val/acc1": null}', "[1]", '{"val/acc1": 3}', '{"update": "x"}', '{"update": 40, "va')
    path.write_text(path.read_text() + "\n".join(broken))
    assert curves.read(tmp_path / "a")["val/acc1"].updates.tolist() == [10, 20, 30]
    assert curves.read(tmp_path / "nowhere") == {}
