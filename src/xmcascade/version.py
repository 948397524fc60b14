"""The package's version: read by the build, stored in every model folder."""

__version__ = "0.1.0"
