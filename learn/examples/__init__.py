"""Examples of melting: a trained denoiser is fine-tuned as a CNN, as attention, and as controls."""
