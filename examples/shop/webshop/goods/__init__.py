"""goods: what is for sale, and how much of it is there."""
