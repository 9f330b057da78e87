"""Tables, JSON, HTML and live views: how facts are shown."""
