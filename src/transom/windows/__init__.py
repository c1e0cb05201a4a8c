"""Windows, panes, keys and partials; pure."""
