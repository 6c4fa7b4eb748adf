"""How rows lie on the device: as tiles of antennas or one by one, and their data with them."""
