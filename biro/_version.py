"""The version of the distribution: nothing else states it, but the changelog."""

__version__ = "0.3.0"
