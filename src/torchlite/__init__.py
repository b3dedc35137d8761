"""Plain-PyTorch image classification experiments, composed by Hydra, that a teammate can repeat and trust."""

__version__ = "0.1.0"
