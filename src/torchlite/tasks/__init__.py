"""What a training step is. A task has `metrics`, `training_step` and `evaluation_step`, and the loop knows no more of it;
`predict`, where it has one, serves pictures of mistakes and predictions."""

from torchlite.tasks.classification import Classification
from torchlite.tasks.step import Step

__all__ = ["Classification", "Step"]
