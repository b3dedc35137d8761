"""Where every random choice comes from: the global generators, seeded and saved; for the data a hash of (seed, epoch, sample).

The hash is counter-based (the finalizer of SplitMix64, Steele et al. 2014): a draw depends on its indices alone, so the
order of samples and their augmentation are the same for any number of workers, after any interruption and on any device,
and it has no state to save. It uses wrapping 64-bit integer arithmetic, which is exact on CPU and GPU alike.
"""

import os
import random
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

_MASK = (1 << 64) - 1
# Streams: the same (seed, epoch, sample) gives unrelated draws in each
ORDER, AUGMENT, SAMPLE, CROP, WINDOW, BALANCE, STREAM = 1, 2, 3, 4, 5, 6, 7


def _signed(value: int) -> int:
    """The same 64 bits as the signed integer torch stores."""
    value &= _MASK
    return value - (1 << 64) if value >> 63 else value


_GAMMA = _signed(0x9E3779B97F4A7C15)
_MIX_1 = _signed(0xBF58476D1CE4E5B9)
_MIX_2 = _signed(0x94D049BB133111EB)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical right shift of int64, which torch's `>>` is not for negative numbers."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shift(x, 30)) * _MIX_1
    x = (x ^ _shift(x, 27)) * _MIX_2
    return x ^ _shift(x, 31)


def _mix_int(x: int) -> int:
    x &= _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def _key(seed: int, epoch: int, stream: int) -> int:
    key = _mix_int(seed + 0x9E3779B97F4A7C15)
    key = _mix_int(key ^ _mix_int(epoch + 0x632BE59BD9B4E019))
    return _mix_int(key ^ _mix_int(stream + 0xD1B54A32D192ED03))


def hash_bits(seed: int, epoch: int, sample_ids: Tensor, num_draws: int, stream: int) -> Tensor:
    """Random bits [N, num_draws] (int64) that depend on (seed, epoch, sample id, draw, stream) and on nothing else.

    Args:
        sample_ids: int64 [N], on any device; the result lies on the same one.
    """
    key = _signed(_key(seed, epoch, stream))
    per_sample = _mix(sample_ids.to(torch.int64) * _GAMMA + key)
    draw = torch.arange(1, num_draws + 1, device=sample_ids.device, dtype=torch.int64) * _GAMMA
    return _mix(per_sample[:, None] + draw[None, :])


def draws(seed: int, epoch: int, sample_ids: Tensor, num_draws: int, stream: int = AUGMENT) -> Tensor:
    """Uniform numbers in [0, 1), float32 [N, num_draws]: a function of (seed, epoch, sample id, draw) alone."""
    bits = hash_bits(seed, epoch, sample_ids, num_draws, stream)
    return _shift(bits, 40).to(torch.float32) * (1.0 / (1 << 24))  # 24 bits: all that a float32 in [0, 1) holds evenly


def permutation(seed: int, epoch: int, num_samples: int, stream: int = ORDER) -> Tensor:
    """The order of samples in one epoch: a permutation of range(num_samples), int64, a function of (seed, epoch)."""
    bits = hash_bits(seed, epoch, torch.arange(num_samples), 1, stream)[:, 0]
    return torch.argsort(bits, stable=True)


def sample_seed(seed: int, epoch: int, sample_id: int, stream: int = SAMPLE) -> int:
    """A 63-bit seed for a generator that serves one sample (or, in the stream WINDOW, one update) in one epoch."""
    return _mix_int(_mix_int(sample_id * 0x9E3779B97F4A7C15) + _key(seed, epoch, stream)) >> 1


def seed_everything(seed: int) -> None:
    """Seed Python's, numpy's and torch's generators (every device); loader workers are seeded per sample."""
    random.seed(seed)
    np.random.seed(seed % (1 << 32))
    torch.manual_seed(seed)


def set_determinism(enabled: bool) -> None:
    """Turn PyTorch's determinism on or off, everywhere it has a switch; call before the first CUDA operation.

    On: deterministic algorithms (an operation that has none warns and goes on), no cuDNN benchmark, no TF32. Uninitialized
    memory is not filled, since nothing here reads it and filling costs a small CNN 20 %.
    """
    # Read when CUDA starts; cuBLAS is not deterministic without
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(enabled, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cudnn.deterministic = enabled
    torch.backends.cudnn.benchmark = not enabled
    torch.backends.cuda.matmul.allow_tf32 = not enabled
    torch.backends.cudnn.allow_tf32 = not enabled


def determinism() -> dict[str, bool]:
    """How the switches of `set_determinism` stand, for the record."""
    return {
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "tf32": torch.backends.cuda.matmul.allow_tf32,
    }


def generators() -> dict[str, Any]:
    """The state of Python's, numpy's and torch's generators, as plain types and tensors."""
    name, keys, position, has_gauss, gauss = cast(tuple[str, np.ndarray, int, int, float], np.random.get_state())
    version, words, cached = random.getstate()
    state = {
        "python": [version, torch.tensor(words), cached],  # 625 words, each of which pickling would call Python for
        "numpy": [str(name), torch.from_numpy(keys.astype(np.int64)), int(position), int(has_gauss), float(gauss)],
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def restore_generators(state: dict[str, Any]) -> None:
    """Put all generators where `generators` found them."""
    version, words, gauss = state["python"]
    random.setstate((version, tuple(torch.as_tensor(words).tolist()), gauss))
    name, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), position, has_gauss, cached))
    torch.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.is_available():
        for index, own in enumerate(state["cuda"][: torch.cuda.device_count()]):  # there may be more here, or fewer
            torch.cuda.set_rng_state(own, index)
