"""The tables: each collects changes and writes its rows, several records in one transaction."""
