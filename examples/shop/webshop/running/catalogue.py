"""What a new shop begins with: goods, users with a balance, coupons."""

from __future__ import annotations

from typing import Final

_STOCK: Final = 100_000
GOODS: Final = (
    ("tea", "Green tea", "tea", 650, _STOCK),
    ("coffee", "Coffee, 500 g", "coffee", 1_190, _STOCK),
    ("cup", "Cup", "cup", 890, _STOCK),
    ("bread", "Bread", "bread", 420, _STOCK),
    ("cheese", "Cheese", "cheese", 1_375, _STOCK),
    ("honey", "Honey", "honey", 780, _STOCK),
    ("book", "Book about messages", "book", 3_900, _STOCK),
    ("lamp", "Desk lamp", "lamp", 5_450, _STOCK),
    ("chair", "Chair", "chair", 12_900, _STOCK),
    ("bicycle", "Bicycle", "bicycle", 48_900, _STOCK),
    ("guitar", "Guitar", "guitar", 21_500, _STOCK),
    ("rocket", "Model rocket, the last ones", "rocket", 9_999, 20),
)
"""Id, name, picture (a drawing of the pages), price in cents, pieces."""
NAMES: Final = (
    *("Ada", "Alan", "Barbara", "Carol", "Claude", "Dana", "Donald", "Edith", "Edsger", "Erna"),
    *("Frances", "Gerald", "Grace", "Hedy", "Ida", "Ivan", "Jean", "Joan", "John", "Karen"),
    *("Katherine", "Ken", "Leslie", "Lin", "Lise", "Margaret", "Marie", "Mary", "Max", "Mei"),
    *("Nadia", "Niklaus", "Noor", "Olga", "Omar", "Paul", "Peter", "Quinn", "Radia", "Rosa"),
    *("Sam", "Shafi", "Sofia", "Tim", "Tony", "Uma", "Vera", "Whitfield", "Yara", "Zoe"),
)
"""Of the users; the id is the name in lower case."""
BALANCE: Final = 50_000
COUPONS: Final = (500, 500, 1_000, 1_000, 2_500)
"""Values of the coupons of each user."""
