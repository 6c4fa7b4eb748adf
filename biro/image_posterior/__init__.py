"""Images that are fitted to visibilities: the field, the operator, the fast map, and results with errors."""
