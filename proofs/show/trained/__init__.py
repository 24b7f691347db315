"""Pictures of trained heads: the draft's Figures 2 to 4 and Table 2, the article's Figure 4."""
