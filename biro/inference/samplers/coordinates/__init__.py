"""The coordinates in which NUTS samples, where a posterior is about a standard normal distribution."""
