"""points: what users earn with orders that they have paid."""
