"""python -m webshop.users"""

from webshop.users.service import service

service.run()
