"""Averages over the width of a channel and over an integration: what data that are smeared hold."""

from rime_kernels.smearing.average import Average, Node, average_of
from rime_kernels.smearing.rotation import EARTH_RATE, rates, turned
from rime_kernels.smearing.smearing import Smearing

__all__ = ["EARTH_RATE", "Average", "Node", "Smearing", "average_of", "rates", "turned"]
