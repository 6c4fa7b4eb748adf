"""Lines that name data to be flagged, of biro, CASA and AIPS: read, looked up in a data set, counted."""
