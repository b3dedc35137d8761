"""From an opened source to the samples of a part: served from memory, or made one by one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from torchlite.data import checks, placement
from torchlite.data.augment import Augmentation
from torchlite.data.decode import Opened, Source, check_size, open_source
from torchlite.data.fingerprint import check_files, fingerprint, together
from torchlite.data.loader import Kept, PerSample, Reader
from torchlite.data.order import Order, Sampling
from torchlite.data.pixels import BadFilesError, SizesDifferError
from torchlite.data.preprocess import Preprocess
from torchlite.data.samples import InMemory, Loaded, Samples
from torchlite.data.split import cut, described
from torchlite.data.streams import StreamReader, is_stream, stream_fingerprint
from torchlite.data.workers import AnyReader, StartMethod
from torchlite.errors import UserError

Collate = Callable[[list[tuple[Tensor, int]]], tuple[Tensor, Tensor]]


def opened(
    sources: Mapping[str, Source | None],
    num_classes: int,
    channels: int,
    class_names: list[str] | None,
    names_of: str = "data.train",
) -> dict[str, Opened]:
    """The parts that have a source, all with the class numbers of `class_names` (of the key `names_of`), else of the first."""
    parts: dict[str, Opened] = {}
    for name, source in sources.items():
        if source is not None:
            parts[name] = open_source(source, f"data.{name}", num_classes, channels, class_names, names_of)
            class_names = class_names or parts[name].class_names
    return parts


def streams(
    sources: Mapping[str, Source | None], val_fraction: float, sampling: str, in_memory: object, collate: object
) -> dict[str, Any]:
    """The sources that are read from front to back. Raises UserError where something is asked that they cannot give."""
    found = {name: source for name, source in sources.items() if source is not None and is_stream(source)}
    for name in found:
        if in_memory is True or collate is not None:
            key = "in_memory=true" if in_memory is True else "collate_fn"
            raise UserError(f"data.{name} is a stream, which data.{key} does not go with; take it out.")
    if "train" in found and sources.get("val") is None and val_fraction > 0:
        raise UserError(
            "data.train is a stream, of which nothing can be held out: give data.val, or data.val_fraction=0."
        )
    if "train" in found and sampling != "each_once":
        raise UserError(
            f"data.train is a stream, whose order is its own: data.sampling={sampling} does not go with it."
        )
    return found


@dataclass
class Recipe:
    """How the samples of all parts are made; fields as for `ImageData`."""

    preprocess: torch.nn.Module
    crop: Augmentation | Callable[[Any], Any] | None
    transforms: Sequence[Callable[[Any], Any]] | None
    collate: Collate | None
    seed: int
    channels: int
    image_size: int
    device: torch.device
    num_workers: int
    start_method: StartMethod | None
    augment: Sequence[Augmentation]
    _on_device: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        module = self.preprocess
        fitting = isinstance(module, Preprocess) and (module.resize is not None or module.crop is not None)
        self.fit: placement.Fit | None = module.fit if fitting else None  # type: ignore[assignment]

    def kept_fit(self, name: str) -> placement.Fit | None:
        """What brings the images of a part to the size they are kept in: none where `crop` wants them whole."""
        return None if name == "train" and self.crop is not None else self.fit

    def kept(self, parts: Mapping[str, Opened], asked: bool | Literal["auto"], memory_share: float) -> dict[str, Kept]:
        """Every part decoded in memory, or nothing."""
        fits = {name: self.kept_fit(name) for name in parts}
        changed_later = ("train",) if self.crop is not None or self.transforms else ()
        for name, part in parts.items():
            size = placement.kept_size(part, fits[name])
            if size is not None and self.collate is None and name not in changed_later:
                check_size(size, self.image_size, part.name)
        if not placement.in_memory(asked, parts, fits, memory_share, self.device):
            return {}
        module = self.preprocess
        key = f"{module.resize} {module.crop}" if isinstance(module, Preprocess) else ""
        kept, problems = {}, []
        for name, part in parts.items():
            try:
                kept[name] = placement.kept(part, fits[name], key if fits[name] else "")
            except BadFilesError as error:  # damaged where a look at the ends does not show it
                problems += error.problems
            except SizesDifferError:  # which the few that were looked at did not show
                if asked is True or (name not in changed_later and self.collate is None):
                    raise
                return {}
        if problems:
            raise BadFilesError(problems)
        return kept

    def stream(self, name: str, source: Any, num_classes: int, class_names: list[str] | None, names_of: str) -> Loaded:
        """The samples of a part that is a stream; `class_names` (of the key `names_of`) tell what its labels are."""
        training = name == "train"
        per_sample = PerSample(
            self.crop if training and self.crop is not None else self.fit,
            (self.transforms or ()) if training else (),
            self.seed if training else None,
            self.channels,
            self.image_size,
            seeded=True,
        )
        reader = StreamReader(source, f"data.{name}", per_sample, num_classes, class_names, names_of)
        reader.try_one()
        return self._loaded(reader, name)

    def _loaded(self, reader: AnyReader, name: str) -> Loaded:
        augment = self.augment if name == "train" else ()
        keep = name != "test"  # which is read once
        return Loaded(reader, self.device, self.num_workers, self.start_method, keep, augment, self.seed)

    def samples(self, name: str, part: Opened, kept: Kept | None, rows: Tensor | None, origin: str) -> Samples:
        """The samples of the part `name`, made from the source of the part `origin`, of which it is the given rows."""
        training = name == "train"
        fit = self.fit if kept is None or self.kept_fit(origin) is None else None
        crop = self.crop if training and self.crop is not None else fit
        transforms = (self.transforms or ()) if training else ()
        if kept is not None and crop is None and not transforms and self.collate is None:
            if origin not in self._on_device:
                self._on_device[origin] = kept.images.to(self.device)
            whole = InMemory(self._on_device[origin], part.targets.to(self.device))
            return whole if rows is None else whole.part(rows)
        others = kept is None and part.images is None and not getattr(part.source, "plain_files", False)
        drawn = training and crop is self.crop and crop is not None and not hasattr(crop, "num_draws")
        per_sample = PerSample(
            crop,
            transforms,
            self.seed if training else None,
            self.channels,
            self.image_size if self.collate is None else None,
            seeded=others or drawn or bool(transforms),
        )
        targets = part.targets if rows is None else part.targets[rows]
        # Copies: a tensor that is handed to a worker moves to shared memory, and an array over it would read what was freed
        numbers = None if rows is None else rows.numpy().copy()
        reader = Reader(kept or part, numbers, targets.numpy().copy(), per_sample, self.collate)
        reader.try_one()
        return self._loaded(reader, name)


@dataclass
class Assembled:
    """All parts, and what a run must know about them; fields as for `ImageData`."""

    samples: dict[str, Samples]
    class_names: list[str]
    fingerprint: str
    split: dict[str, Any]
    in_memory: bool
    order: Order


def assembled(
    sources: Mapping[str, Source | None],
    recipe: Recipe,
    num_classes: int,
    class_names: Sequence[str | int] | None,
    in_memory: bool | Literal["auto"],
    memory_share: float,
    val_fraction: float,
    split_seed: int,
    sampling: Sampling,
) -> Assembled:
    """The samples of all parts; arguments as for `ImageData`."""
    flowing = streams(sources, val_fraction, sampling, in_memory, recipe.collate)
    names = checks.class_names(class_names or getattr(flowing.get("train"), "classes", None), num_classes)
    names_of = "data.class_names" if class_names else "data.train"
    parts = opened(
        {n: s for n, s in sources.items() if n not in flowing}, num_classes, recipe.channels, names, names_of
    )
    if "train" in parts:
        names = parts["train"].class_names
        checks.every_class_has_samples(parts["train"].targets, names, num_classes)
    check_files(parts)
    kept = recipe.kept(parts, in_memory, memory_share)
    prints = {name: fingerprint(part) for name, part in parts.items()}
    samples: dict[str, Samples] = {}
    for name, source in flowing.items():
        samples[name] = stream = recipe.stream(name, source, num_classes, names, names_of)
        prints[name] = stream_fingerprint(stream.reader)
    rows = cut(parts, val_fraction, split_seed)
    for name, own in rows.items():
        origin = name if name in parts else "train"
        samples[name] = recipe.samples(name, parts[origin], kept.get(origin), own, origin)
    split = described({name: len(part.targets) for name, part in samples.items()}, rows, val_fraction, split_seed)
    split["fingerprint_of"] = {name: part.of for name, part in prints.items()}
    names = names or [str(label) for label in range(num_classes)]
    order: Order = "as_it_comes" if "train" in flowing else sampling
    return Assembled(samples, names, together(prints), split, bool(kept), order)
