"""What TensorBoard would show: read back from the event file."""

import shutil
from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn

from tests.conftest import Typed
from tests.runs import BASE, TIMES, result, the_run
from torchlite.callbacks.tensorboard import flat_hparams, image_grid, stacked


@pytest.fixture
def events(typed: Typed, tmp_path: Path) -> EventAccumulator:
    done = typed("trainer=smoke", "trainer.max_epochs=2", "model=mlp", "callbacks.tensorboard.num_images=12")
    assert done.code == 0, done.text
    (folder,) = (tmp_path / "outputs").rglob("tensorboard")
    return EventAccumulator(str(folder), size_guidance={"images": 0, "scalars": 0}).Reload()


def test_scalars_images_and_hparams_are_in_one_run(events: EventAccumulator) -> None:
    """T14"""
    tags = events.Tags()
    wanted = {
        "train/loss",
        "val/loss",
        "val/acc1",
        "lr",
        "grad_norm",
        "seconds/epoch",
        "update/loss",
        "images_per_second",
    }
    assert wanted <= set(tags["scalars"])
    assert {"train/augmented", "val/misclassified"} <= set(tags["images"])
    assert {"final/test/acc1", "final/val/acc1"} <= set(tags["scalars"])
    session = events.SummaryMetadata("_hparams_/session_start_info")
    assert session.plugin_data.plugin_name == "hparams"
    picture = events.Images("train/augmented")[0]
    assert (picture.width, picture.height) == (8 * 65 + 1, 2 * 65 + 1)
    assert "val/misclassified/text_summary" in tags["tensors"]


def test_each_curve_has_one_value_per_update_and_the_lines_of_the_record(
    events: EventAccumulator, tmp_path: Path
) -> None:
    import json

    (file,) = (tmp_path / "outputs").rglob("metrics.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for name in ("train/loss", "update/loss", "lr", "val/acc1"):
        steps = [(event.step, event.value) for event in events.Scalars(name)]
        assert [step for step, _ in steps] == [line["update"] for line in lines if name in line]
        assert [step for step, _ in steps] == sorted({step for step, _ in steps})
        assert [value for _, value in steps] == pytest.approx([line[name] for line in lines if name in line])


def test_hparams_take_any_config() -> None:
    """M01"""
    config = {"a": None, "b": [1, 2], "c": {"d": True, "e": {"f": Path("x")}, "g": {}}, "h": 1.5, "i": "text"}
    flat = flat_hparams(config)
    assert flat == {"a": "None", "b": "[1, 2]", "c.d": True, "c.e.f": "x", "c.g": "{}", "h": 1.5, "i": "text"}


class Halved(nn.Module):
    """A preprocess that cannot be undone."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.float() / 510


def test_batches_without_a_mistake_need_no_picture(typed: Typed, tmp_path: Path) -> None:
    words = ["model=mlp", "trainer.max_epochs=8", "data.eval_batch_size=4", "trainer.num_threads=1"]
    done = typed(*words, "~data.preprocess", "+data.preprocess._target_=tests.test_tensorboard.Halved")
    assert done.code == 0 and result(the_run(tmp_path / "outputs"))["test"]["test/acc1"] > 0.8, done.text


def test_images_of_several_sizes_are_stacked() -> None:
    made = stacked([torch.ones(3, 4, 9), torch.ones(3, 6, 5)])
    assert made.shape == (2, 3, 6, 9) and made[0].sum() == 3 * 36 and made[1, :, :, :5].sum() == made[1].sum() == 90
    assert stacked([]).shape == (0,)


def test_a_grid_frames_every_image() -> None:
    grid = image_grid(torch.ones(10, 3, 64, 70))
    assert grid.shape == (3, 2 * 65 + 1, 8 * 71 + 1)
    assert grid.sum() == 10 * 3 * 64 * 70
    assert grid[:, 0].sum() == 0 and grid[:, 1:65, 1:71].min() == 1
    assert image_grid(torch.ones(1, 1, 8, 8)).shape == (1, 66, 66)


# Runs that were cut off

CURVES = "+callbacks.histograms._target_=torchlite.callbacks.Histograms"


def events_of(run: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard shows of a run: of each scalar its steps and values; of all else the steps.

    Durations are left out, and gradients, which no checkpoint holds: a run cut at an epoch's last update has none to show.
    """
    kinds = ("scalars", "images", "histograms", "tensors")
    events = EventAccumulator(str(run / "tensorboard"), size_guidance=dict.fromkeys(kinds, 0)).Reload()
    shown = {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    for kind in kinds[1:]:
        shown |= {tag: [(e.step, 0) for e in getattr(events, kind.title())(tag)] for tag in events.Tags()[kind]}
    return {
        tag: sorted(points) for tag, points in shown.items() if tag not in TIMES and not tag.startswith("gradients/")
    }


@pytest.mark.slow
@pytest.mark.parametrize("cut", [17, 20, 51])
def test_curves_and_pictures_of_a_resumed_run_are_the_straight_ones(stopped: Typed, tmp_path: Path, cut: int) -> None:
    """M03: stopped at `cut`, then killed in effect later on: what came after the checkpoint is still in the event files.

    17: at the last update of an epoch, whose line has the same step. 51: when the final scores were written, but no result.
    """
    words = [*BASE, "trainer.log_every_updates=1", CURVES]
    assert stopped(None, *words, "name=straight").code == 0
    assert stopped(cut, *words, "name=cut").code == 143
    run = the_run(tmp_path / "outputs" / "cut")
    kept = shutil.copytree(run / "checkpoints", tmp_path / "kept")
    assert stopped(None, *words, "name=cut", "resume=auto").code == 0
    shutil.rmtree(run / "checkpoints")
    shutil.copytree(kept, run / "checkpoints")
    (run / "result.json").write_text('{"status": "running"}')
    assert stopped(None, *words, "name=cut", "resume=auto").code == 0
    shown = events_of(run)
    assert shown == events_of(the_run(tmp_path / "outputs" / "straight"))
    assert [step for step, _ in shown["final/test/acc1"]] == [51] and len(shown["update/loss"]) == 51


def test_a_run_killed_after_its_final_scores_shows_them_once(typed: Typed, tmp_path: Path) -> None:
    """M03"""
    assert typed(*BASE).code == 0
    run = the_run(tmp_path / "outputs")
    before = events_of(run)
    (run / "result.json").write_text('{"status": "running"}')
    assert typed(*BASE, "resume=auto").code == 0
    assert events_of(run) == before and len(before["final/val/acc1"]) == 1


def test_a_first_batch_that_is_tried_again_is_shown_once(typed: Typed, tmp_path: Path) -> None:
    """M03: fp16's scaler overflows in the first batches as often as not."""
    high = ["trainer.precision=fp16", "+callbacks.high._target_=tests.strange_callbacks.HighScale"]
    assert typed(*BASE, *high, "trainer.max_epochs=1").code == 0
    (folder,) = (tmp_path / "outputs").rglob("tensorboard")
    shown = EventAccumulator(str(folder), size_guidance={"images": 0}).Reload()
    assert len(shown.Images("train/augmented")) == 1
