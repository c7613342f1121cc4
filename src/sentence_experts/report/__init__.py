"""Results for people: tables for the terminal, drawings, HTML and Markdown reports."""
