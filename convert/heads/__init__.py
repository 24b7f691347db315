"""Where heads look: positions, content, and what their values allow."""
