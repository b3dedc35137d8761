"""What optimizes: parameter groups, optimizers by name, learning-rate schedules and their stepping."""

from torchlite.optim.averaging import WeightAverage, check_averaging
from torchlite.optim.groups import parameter_groups
from torchlite.optim.scaling import linear_lr
from torchlite.optim.stepping import ScheduleStepper, interval_of, needs_validation
from torchlite.optim.timm_optimizers import timm_optimizer

__all__ = [
    "ScheduleStepper",
    "WeightAverage",
    "check_averaging",
    "interval_of",
    "linear_lr",
    "needs_validation",
    "parameter_groups",
    "timm_optimizer",
]
