"""What latency to expect, and which settings and resources keep it within a limit: pure, from measured costs."""
