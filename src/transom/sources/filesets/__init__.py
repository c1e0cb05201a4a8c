"""Files in directories: found, logged, read by range, and looked at for what does not fit."""
