"""python -m webshop.journal"""

from webshop.journal.service import service

service.run()
