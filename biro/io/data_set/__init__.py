"""What data sets of any format share: rows and metadata, a selection of them, an observation made of it."""
