"""The shop's topics analysed by Spark: figures for a page, and an audit of the database."""
