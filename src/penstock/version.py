"""The version of the whole package, apart so that every room may know it."""

__version__ = "0.1.0"
