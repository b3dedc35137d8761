"""Hooks into the loop, and the callbacks worth shipping. One that is not here is one class in a file of yours."""

from torchlite.callbacks.early_stopping import EarlyStopping
from torchlite.callbacks.freezing import Freeze
from torchlite.callbacks.histograms import Histograms
from torchlite.callbacks.hooks import HOOKS, Callback, Hooks
from torchlite.callbacks.loss_weights import LossWeights
from torchlite.callbacks.mlflow import MLflow
from torchlite.callbacks.progress_bar import ProgressBar
from torchlite.callbacks.tensorboard import TensorBoard

__all__ = [
    "HOOKS",
    "Callback",
    "EarlyStopping",
    "Freeze",
    "Histograms",
    "Hooks",
    "LossWeights",
    "MLflow",
    "ProgressBar",
    "TensorBoard",
]
