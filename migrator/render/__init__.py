"""Documents for terminal, JSON, Markdown, HTML and PDF: tables, charts, progress."""
