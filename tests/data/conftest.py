"""Image folders to read, and a cache that is each test's own."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache, empty."""
    place = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("TORCHLITE_CACHE", str(place))
    return place


MakeFolder = Callable[..., Path]


@pytest.fixture
def folder(tmp_path: Path) -> MakeFolder:
    """Makes ROOT/<class>/<number>.<kind> of smooth colored images and gives ROOT; sizes are (width, height)."""

    def make(
        where: str = "set",
        classes: tuple[str, ...] = ("ant", "bee"),
        per_class: int = 6,
        sizes: tuple[tuple[int, int], ...] = ((40, 30), (28, 36), (33, 33)),
        kind: str = "jpg",
    ) -> Path:
        rng = np.random.default_rng(len(where))
        for label, name in enumerate(classes):
            (tmp_path / where / name).mkdir(parents=True)
            for index in range(per_class):
                corners = rng.integers(0, 256, (3, 4, 3), dtype=np.uint8)
                corners[..., label % 3] //= 2
                image = Image.fromarray(corners).resize(sizes[index % len(sizes)], Image.Resampling.BILINEAR)
                image.save(tmp_path / where / name / f"{index}.{kind}")
        return tmp_path / where

    return make
