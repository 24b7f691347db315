"""What a network did: the operations of one run, recorded, and walks through them."""
