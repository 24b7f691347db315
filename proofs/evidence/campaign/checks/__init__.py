"""What a campaign checks of each layer."""
