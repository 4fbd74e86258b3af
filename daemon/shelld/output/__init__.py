"""What commands write: kept within bounds, turned into text, filtered."""
