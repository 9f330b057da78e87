"""The only place that knows every adapter."""
