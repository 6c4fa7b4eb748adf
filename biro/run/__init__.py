"""Run directories: what was run on what data, with its lock, its log and a clean stop on a signal."""
