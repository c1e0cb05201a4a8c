"""Files and directories that are there whole and durably, or not at all; errors stay those of the system."""
