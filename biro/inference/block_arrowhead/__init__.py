"""Symmetric matrices of chained blocks with a border: how thousands of gains are told of one another."""
