"""Run directories: the record of what was run on what data, their lock and log, and the stop on a signal."""
