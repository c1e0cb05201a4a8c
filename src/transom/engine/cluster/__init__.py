"""The tier of partials that are too large for the driver: files by key group, merged on the executors."""
