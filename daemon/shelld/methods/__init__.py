"""The method bodies: params in, one call on the manager, result out."""
