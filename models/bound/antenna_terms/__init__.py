"""Jones matrices of the antennas as functions of the values, with their derivatives."""
