"""From a CNN to attention that trains, with the distance known."""
