"""Where sources are: tangent planes of several fields, and motion from one time to another."""
