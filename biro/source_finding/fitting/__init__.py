"""Components fitted to visibilities, with errors of gains as a part of the noise."""
