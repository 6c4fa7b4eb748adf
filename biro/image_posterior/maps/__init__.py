"""The fast map: the most probable image, with gains and components beside it."""
