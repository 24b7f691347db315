"""Three small CNNs that were really trained, and the images they were trained on."""
