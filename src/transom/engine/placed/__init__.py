"""Tasks at chosen executors, bytes between executors, and files mapped into their memory."""
