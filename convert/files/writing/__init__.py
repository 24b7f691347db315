"""Files that are written: old or new, never a mix."""
