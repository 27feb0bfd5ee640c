"""The questions: each takes a view and what is asked, and returns rows."""
