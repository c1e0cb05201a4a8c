"""The state of streams: panes, windows, watermarks."""
