"""Image sets in tar files, as the package webdataset writes and reads them."""

import glob
import os
import re
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from torchlite.data.pixels import shown
from torchlite.errors import UserError
from torchlite.randomness import STREAM, permutation, sample_seed

SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
ADDRESS = re.compile(r"(https?|s3|gs|hf|ais)://[A-Za-z0-9._~:/?#@!+,=%-]+")


def _found(name: str) -> list[str]:
    """The files that a name with *, ? or [] stands for, in order; any other name stands for itself."""
    if os.path.isfile(name) or "://" in name or not glob.has_magic(name):
        return [name]
    return sorted(glob.glob(name)) or [name]


Sample = tuple[bytes, int, str]  # image, label, and what messages call it


class TarShards:
    """A stream of the samples in tar files: files of one name and several endings, such as 0001.jpg and 0001.cls.

    Args:
        shards: tar files; "train-{000..099}.tar" or "train-*.tar" stands for many. samples_per_epoch: how many samples
        all of them hold, or fewer to end an epoch early. image_key: endings of images, separated by ";". label_key:
        ending of the file that holds the label, a whole number as text. shuffle_buffer: samples among which the next is
        drawn; the order of shards is drawn too. 0: in order, for evaluation. classes: names in label order; None where
        labels are numbers only.

    Raises:
        UserError: webdataset is not installed, or a tar file is missing.
    """

    def __init__(
        self,
        shards: str | Sequence[str],
        samples_per_epoch: int,
        image_key: str = "jpg;jpeg;png;webp",
        label_key: str = "cls",
        shuffle_buffer: int = 0,
        classes: Sequence[str | int] | None = None,
    ) -> None:
        try:
            from webdataset.shardlists import expand_urls
        except ImportError:
            raise UserError(
                "data: tar shards need webdataset, which is not installed; in the clone: pip install -e '.[webdataset]'"
            ) from None
        listed = [shards] if isinstance(shards, str) else list(shards)
        self.files = [path for pattern in listed for name in expand_urls(pattern) for path in _found(name)]
        commands = [path for path in self.files if SCHEME.match(path) and not ADDRESS.fullmatch(path)]
        if commands:  # webdataset hands them to a shell, and a config may come from somebody else's record
            raise UserError(f"data: {shown(commands[0])} is no tar file and no plain address of one.")
        missing = [path for path in self.files if not SCHEME.match(path) and not os.path.isfile(path)]
        if missing or not self.files:
            raise UserError(
                f"data: there is no tar file {shown(missing[0] if missing else str(shards))}. data.train.shards and "
                "data.val.shards say where they are: 'data.train.shards=\"FOLDER/train-*.tar\"'."
            )
        self.samples_per_epoch = samples_per_epoch
        self.image_key, self.label_key = image_key, label_key
        self.shuffle_buffer = shuffle_buffer
        if classes is not None:
            self.classes = [str(name) for name in classes]
        self._seed, self._epoch = 0, 0

    def begin(self, seed: int, epoch: int) -> None:
        """What the next pass over the samples is a function of."""
        self._seed, self._epoch = seed, epoch

    def __iter__(self) -> Iterator[Sample]:
        from webdataset import WebDataset

        files = self.files
        if self.shuffle_buffer:
            files = [files[i] for i in permutation(self._seed, self._epoch, len(files), STREAM).tolist()]
        samples = WebDataset(files, shardshuffle=False, nodesplitter=None, workersplitter=None, empty_check=False)
        return self._shuffled(self._parsed(sample) for sample in self._whole(samples))

    def _whole(self, samples: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """The samples; a tar file that is damaged is named."""
        last = "the first sample"
        try:
            for sample in samples:
                last = f"what follows {sample.get('__key__')} in {shown(str(sample.get('__url__')))}"
                yield sample
        except (tarfile.TarError, OSError, EOFError, ValueError, zlib.error) as error:
            files = f"{shown(self.files[0])}, …" if len(self.files) > 1 else shown(self.files[0])
            raise UserError(
                f"data: {last} cannot be read ({files}): {str(error.args[0] if error.args else error)}"
            ) from error

    def _parsed(self, sample: dict[str, Any]) -> Sample:
        where = f"{shown(str(sample.get('__url__')))}, sample {sample.get('__key__')}"
        image = next((sample[key] for key in self.image_key.split(";") if key in sample), None)
        if image is None or self.label_key not in sample:
            raise UserError(
                f"{where}: it has {', '.join(k for k in sample if k[0] != '_')}, "
                f"not {self.image_key} and {self.label_key}."
            )
        text = sample[self.label_key].decode("utf-8", "replace").strip()
        if not text.removeprefix("-").isdecimal():
            raise UserError(f"{where}: the label {text!r} is no whole number.")
        return image, int(text), where

    def _shuffled(self, samples: Iterator[Sample]) -> Iterator[Sample]:
        """The samples, each drawn from among the next `shuffle_buffer`."""
        if not self.shuffle_buffer:
            yield from samples
            return
        seed = sample_seed(self._seed, self._epoch, -2, STREAM)
        rng = np.random.RandomState([seed & 0xFFFFFFFF, seed >> 32])
        waiting: list[Sample] = []
        for sample in samples:
            waiting.append(sample)
            if len(waiting) == self.shuffle_buffer:
                chosen = rng.randint(len(waiting))
                waiting[chosen], waiting[-1] = waiting[-1], waiting[chosen]
                yield waiting.pop()
        yield from (waiting[i] for i in rng.permutation(len(waiting)))
