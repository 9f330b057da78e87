"""A small web server: reads only, few clients, nothing that a stranger could use."""
