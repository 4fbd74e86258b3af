"""Output filters: RE2, and a helper process for the patterns that RE2 refuses."""
