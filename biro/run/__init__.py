"""Run directories (record, lock, log, the stop on a signal), and the streams and variables of a command."""
