"""Takes attention of other people as it is, so that what is known of ours can be asked of it."""
