"""Networks for small images: blocks of attention, and the residual networks beside them."""
