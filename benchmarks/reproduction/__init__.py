"""The experiments of Kang, Briol, Karvonen and Chen (BayesSum), reproduced and corrected."""
