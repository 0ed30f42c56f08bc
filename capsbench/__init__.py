"""capsbench: the reproducibility benchmark of Capsule Networks."""

__version__ = "0.1.0"
