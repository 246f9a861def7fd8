"""Plans, events and tables become text, JSON and Markdown; whatever came from outside is escaped here."""
