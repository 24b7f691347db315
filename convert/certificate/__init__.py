"""How far a layer, or a network, can be from its convolutions."""
