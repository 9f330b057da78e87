"""What people and programs are shown: one document of plain text, rendered as terminal, Markdown, HTML; and JSON."""
