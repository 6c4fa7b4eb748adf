"""How the feeds of antennas stand on the sky: mounts, parallactic angles, angles of receptors."""
