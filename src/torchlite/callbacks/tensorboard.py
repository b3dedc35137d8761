"""TensorBoard: every logged number, pictures of what goes in and of what goes wrong, and the HPARAMS tab."""

import math
import os
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from torchlite.callbacks.hooks import Callback

SMALLEST = 64  # pixels, the side of an image in a grid
NOT_SHOWN = ("name", "data_dir", "resume", "dry_run", "fail_fast")  # in the HPARAMS tab: they change no result


class EventFiles(Callback):
    """Has a `writer` to `<run directory>/tensorboard`; a resumed run finds there what its checkpoint counts, and no more.

    TensorBoard's own way, a mark from which update on older events do not hold, cannot tell what was written of an update
    before its checkpoint from what was written after, and takes away what another file of the same attempt holds.
    """

    suffix: str  # of the files' names, which are this callback's alone
    writer: Any = None
    sizes: dict[str, int] | None = None  # bytes of each file at the checkpoint

    def on_fit_begin(self, trainer: Any) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.folder = trainer.record.directory / "tensorboard"
        if self.sizes is not None:
            for path in self._files():
                if path.name in self.sizes:
                    os.truncate(path, min(self.sizes[path.name], path.stat().st_size))
                else:
                    path.unlink()
        self.writer = SummaryWriter(str(self.folder), filename_suffix=self.suffix)

    def _files(self) -> list[Path]:
        return list(self.folder.glob(f"*{self.suffix}"))

    def state_dict(self) -> dict[str, Any]:
        self.writer.flush()
        return {"sizes": {path.name: path.stat().st_size for path in self._files()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.sizes = state.get("sizes")

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
            self.writer = None


class TensorBoard(EventFiles):
    """Writes to `<run directory>/tensorboard`; the x-axis is the applied update.

    Scalars under the names of metrics.jsonl, a grid of augmented training images, a grid of validation images that the best
    weights get wrong, and the config with the final scores, in the same run.

    Args:
        num_images: images in each grid; 0 writes none.
    """

    suffix = ".curves"

    def __init__(self, num_images: int = 32) -> None:
        self.num_images = num_images

    def on_log(self, trainer: Any, values: dict[str, float]) -> None:
        from torch.utils.tensorboard.summary import Summary

        # One event for all: TensorBoard checksums each in Python, in a thread that holds up the loop meanwhile
        named = [(name, value) for name, value in values.items() if name not in ("update", "epoch")]
        scalars = Summary(value=[Summary.Value(tag=name, simple_value=value) for name, value in named])
        self.writer.file_writer.add_summary(scalars, trainer.progress.update)

    def on_batch_begin(self, trainer: Any, batch: Any) -> None:
        if trainer.progress.update == trainer.progress.batch == 0 and self.num_images:
            self.writer.add_image("train/augmented", image_grid(shown(trainer, batch.images[: self.num_images])), 0)

    def on_fit_end(self, trainer: Any, scores: dict[str, float]) -> None:
        update = trainer.progress.update
        if self.num_images and trainer.data.val is not None and hasattr(trainer.task, "predict"):
            wrong, labels = misclassified(trainer, self.num_images)
            if labels:
                self.writer.add_image("val/misclassified", image_grid(wrong), update)
                self.writer.add_text("val/misclassified", _encodable("row by row: " + ", ".join(labels)), update)
        from torch.utils.tensorboard.summary import hparams

        final = {f"final/{name}": value for name, value in scores.items() if math.isfinite(value)}
        for summary in hparams(
            flat_hparams({k: v for k, v in trainer.record.config.items() if k not in NOT_SHOWN}), final
        ):
            self.writer.file_writer.add_summary(summary)
        for name, value in final.items():
            self.writer.add_scalar(name, value, update)


def shown(trainer: Any, images: Tensor) -> Tensor:
    """Preprocessed images as they can be looked at: in 0..1, on the CPU; a preprocess without `undo` is stretched to that."""
    images = images.float()
    undo = getattr(trainer.data.preprocess, "undo", None)
    if undo is not None:
        return undo(images).cpu()
    low, high = images.amin(), images.amax()
    return ((images - low) / (high - low).clamp(min=1e-6)).cpu()


@torch.no_grad()
def misclassified(trainer: Any, num_images: int) -> tuple[Tensor, list[str]]:
    """The first `num_images` validation images whose most probable class is not their label.

    Returns:
        the images, [N, C, H, W] in 0..1, and for each "label, taken for prediction".
    """
    found: list[Tensor] = []
    labels: list[str] = []
    names = trainer.data.class_names
    trainer.model.eval()
    for batch in trainer.data.val.epoch(0):
        with trainer.updater.autocast():
            predicted = trainer.task.predict(trainer.model, batch.images).argmax(dim=1)
        wrong = predicted != batch.targets
        if not wrong.any():
            continue
        found += shown(trainer, batch.images[wrong])
        pairs = zip(batch.targets[wrong].tolist(), predicted[wrong].tolist(), strict=True)
        labels += [f"{names[target]} taken for {names[prediction]}" for target, prediction in pairs]
        if len(found) >= num_images:
            break
    return stacked(found[:num_images]), labels[:num_images]


def stacked(images: list[Tensor]) -> Tensor:
    """[N, C, H, W] of images of any size, the smaller ones with black to the right and below."""
    if not images:
        return torch.empty(0)
    height, width = (max(image.shape[axis] for image in images) for axis in (1, 2))
    return torch.stack([F.pad(i, (0, width - i.shape[2], 0, height - i.shape[1])) for i in images])


def flat_hparams(config: dict[str, Any], prefix: str = "") -> dict[str, bool | int | float | str]:
    """`{"optimizer.lr": 0.001, …}`: a nested config as the numbers, truth values and text that TensorBoard can hold."""
    flat: dict[str, bool | int | float | str] = {}
    for key, value in config.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            flat |= flat_hparams(value, f"{name}.")
        else:
            flat[name] = value if isinstance(value, bool | int | float) else _encodable(str(value))
    return flat


def _encodable(text: str) -> str:
    """The text with what UTF-8 has not, such as a file name of other bytes, escaped."""
    return text.encode("utf-8", "backslashreplace").decode()


def image_grid(images: Tensor, columns: int = 8, padding: int = 1) -> Tensor:
    """One picture [C, height, width] of many [N, C, H, W], in rows of `columns`, each framed by `padding` black pixels."""
    scale = max(1, SMALLEST // max(images.shape[2:]))  # 8 x 8 pixels are too small to be looked at
    images = images.repeat_interleave(scale, dim=2).repeat_interleave(scale, dim=3)
    n, c, h, w = images.shape
    columns = min(columns, n)
    rows = math.ceil(n / columns)
    grid = images.new_zeros(c, rows * (h + padding) + padding, columns * (w + padding) + padding)
    for i, image in enumerate(images):
        top = (i // columns) * (h + padding) + padding
        left = (i % columns) * (w + padding) + padding
        grid[:, top : top + h, left : left + w] = image
    return grid
