"""Files that survive a crash, and files of others that are read without trust."""
