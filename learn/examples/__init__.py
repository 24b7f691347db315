"""Examples of melting: a trained denoiser goes on as the CNN, as attention, and as what attention is compared with."""
