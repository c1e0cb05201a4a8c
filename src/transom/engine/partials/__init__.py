"""Partials as tables, and what is made of them: results, sessions, updates, history."""
