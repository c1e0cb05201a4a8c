"""Values that all packages share."""
