"""Which stream runs next; pure."""
