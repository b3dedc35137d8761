"""What a training step is. A task is one class; the loop calls three of its methods and knows no more."""

from torchlite.tasks.classification import Classification
from torchlite.tasks.step import Step

__all__ = ["Classification", "Step"]
