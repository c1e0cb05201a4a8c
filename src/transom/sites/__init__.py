"""Sites that ship partials to one another: sources of what arrives, and what leaves."""
