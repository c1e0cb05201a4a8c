"""Jobs as TOML files, read through the public interface."""
