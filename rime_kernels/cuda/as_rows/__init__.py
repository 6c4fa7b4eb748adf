"""Engines whose data lie on the device as rows do: of smeared models, and of visibilities that stay there."""
