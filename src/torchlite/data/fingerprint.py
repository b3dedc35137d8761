"""The identity of data by content."""

import hashlib
from collections.abc import Mapping

from torchlite.data.decode import ROWS_AT_ONCE, Decoded


def fingerprint(parts: Mapping[str, Decoded]) -> str:
    """SHA-256, as hexadecimal digits, of every pixel and label of the named parts, in order."""
    digest = hashlib.sha256()
    for name, part in parts.items():
        digest.update(f"{name} {list(part.images.shape)}\n".encode())
        for images in part.images.split(ROWS_AT_ONCE):
            digest.update(images.contiguous().numpy().data)
        digest.update(part.targets.numpy().data)
    return digest.hexdigest()
