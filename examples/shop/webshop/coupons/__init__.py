"""coupons: each is worth some cents, and pays for one order of its owner."""
