"""Image sets: decoded once to uint8, augmented and preprocessed as whole batches, ordered by (seed, epoch) alone."""
